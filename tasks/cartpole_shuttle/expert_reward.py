"""Survival, less the way left to the target, plus a bonus close to it; never far below zero, so that falling does
not pay."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    cart_position: Tensor,
    cart_velocity: Tensor,
    pole_angle: Tensor,
    pole_velocity: Tensor,
    target_position: Tensor,
) -> Tuple[Tensor, Dict[str, Tensor]]:
    way = torch.abs(cart_position - target_position)
    alive = torch.ones_like(way)
    approach = -0.3 * way
    close = torch.exp(-20.0 * torch.square(way))
    upright = -torch.square(pole_angle)
    slow = -0.02 * (torch.square(cart_velocity) + torch.square(pole_velocity))
    reward = alive + approach + close + upright + slow
    parts = {"alive": alive, "approach": approach, "close": close, "upright": upright, "slow": slow}
    return reward, parts
