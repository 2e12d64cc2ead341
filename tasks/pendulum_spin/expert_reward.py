"""Distance from the wanted speed, linear so that swinging back and forth to gather speed costs nothing, and a bonus
close to it."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(angular_velocity: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
    error = torch.abs(angular_velocity - 6.0)
    approach = -0.1 * error
    close = torch.exp(-torch.square(error))
    reward = approach + close
    return reward, {"approach": approach, "close": close}
