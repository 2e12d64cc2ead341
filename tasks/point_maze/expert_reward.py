"""What is left of the way around the wall, and a bonus close to the goal."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(way_left: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
    approach = -0.5 * way_left
    close = 2.0 * torch.exp(-8.0 * torch.square(way_left))
    reward = approach + close
    return reward, {"approach": approach, "close": close}
