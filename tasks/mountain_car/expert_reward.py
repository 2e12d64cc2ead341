"""Gain in mechanical energy, which is what the car needs to climb, and a bonus at the flag."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def energy(height: Tensor, velocity: Tensor) -> Tensor:
    """Potential and kinetic energy in units of what lies between the valley's floor and the flag."""
    potential = 0.0025 / 3.0 / 0.45 * height
    return (potential + 0.5 * torch.square(velocity)) / 0.00165


def compute_reward(
    position: Tensor,
    height: Tensor,
    velocity: Tensor,
    prev_height: Tensor,
    prev_velocity: Tensor,
) -> Tuple[Tensor, Dict[str, Tensor]]:
    gain = 10.0 * (energy(height, velocity) - energy(prev_height, prev_velocity))
    flag = 10.0 * (position >= 0.45).float()
    hurry = -0.01 * torch.ones_like(position)
    reward = gain + flag + hurry
    return reward, {"gain": gain, "flag": flag, "hurry": hurry}
