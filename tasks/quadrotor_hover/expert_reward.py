"""Closeness to the goal, wide and narrow, and a price on tilt and rotation; flying on always pays."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    position: Tensor, velocity: Tensor, goal_pos: Tensor, tilt: Tensor, angular_velocity: Tensor
) -> Tuple[Tensor, Dict[str, Tensor]]:
    distance = torch.norm(position - goal_pos, dim=-1)
    alive = torch.ones_like(distance)
    near = 1.0 - torch.tanh(distance)
    close = torch.exp(-15.0 * torch.square(distance))
    still = -0.05 * torch.sum(torch.square(velocity), dim=-1)
    level = -0.2 * torch.square(tilt)
    calm = -0.02 * torch.sum(torch.square(angular_velocity), dim=-1)
    reward = alive + near + close + still + level + calm
    parts = {"alive": alive, "near": near, "close": close, "still": still, "level": level, "calm": calm}
    return reward, parts
