"""A bonus for a speed in the band, and a slight price on the way to it that rocking to gather speed can bear."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(angular_velocity: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
    error = torch.abs(angular_velocity - 6.0)
    approach = -0.05 * error
    in_band = torch.sigmoid(8.0 * (1.0 - error))
    reward = approach + in_band
    return reward, {"approach": approach, "in_band": in_band}
