"""Pole height near the middle of the track, and as much again for standing there slowly; never negative, so that
leaving the track cannot pay."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    cart_position: Tensor, pole_angle: Tensor, pole_velocity: Tensor
) -> Tuple[Tensor, Dict[str, Tensor]]:
    height = 0.5 * (1.0 + torch.cos(pole_angle))
    centred = torch.exp(-0.5 * torch.square(cart_position))
    upright = height * centred
    balanced = torch.exp(-4.0 * torch.square(pole_angle) - 0.2 * torch.square(pole_velocity)) * centred
    reward = upright + balanced
    return reward, {"upright": upright, "balanced": balanced}
