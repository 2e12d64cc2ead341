"""Distance to the goal; close to it, the right heading and standing still."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    position: Tensor, goal_pos: Tensor, heading_left: Tensor, speed: Tensor
) -> Tuple[Tensor, Dict[str, Tensor]]:
    distance = torch.norm(position - goal_pos, dim=-1)
    approach = 1.0 - 0.5 * distance
    near = torch.exp(-6.0 * torch.square(distance))
    close = near * (1.0 + torch.exp(-40.0 * torch.square(distance)))
    aligned = 2.0 * near * torch.exp(-2.0 * torch.square(heading_left))
    still = near * torch.exp(-20.0 * torch.square(speed))
    reward = approach + close + aligned + still
    return reward, {"approach": approach, "close": close, "aligned": aligned, "still": still}
