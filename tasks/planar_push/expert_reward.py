"""The puck's way to the goal, the pusher's way to the point behind the puck, and a bonus at the goal."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(pusher_pos: Tensor, puck_pos: Tensor, goal_pos: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
    way = goal_pos - puck_pos
    distance = torch.norm(way, dim=-1)
    direction = way / torch.clamp(distance, min=0.02).unsqueeze(-1)
    behind = puck_pos - 0.14 * direction
    approach = -0.5 * torch.norm(pusher_pos - behind, dim=-1) * torch.tanh(10.0 * distance)
    puck = -2.0 * distance
    close = torch.exp(-200.0 * torch.square(distance))
    reward = approach + puck + close
    return reward, {"approach": approach, "puck": puck, "close": close}
