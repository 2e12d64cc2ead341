"""Share of the episode spent turning counter-clockwise within 1 rad/s of the wanted 6 rad/s.

Gravity is stronger than the motor, so no narrower band can be held through a whole turn.
"""

import torch
from torch import Tensor


def in_band(angular_velocity: Tensor) -> Tensor:
    """Bool, same shape as the input."""
    return torch.abs(angular_velocity - 6.0) < 1.0


def compute_metric(angular_velocity: Tensor) -> Tensor:
    """Angular velocities (T, B) of whole episodes to the metric (B,) in [0, 1]."""
    return in_band(angular_velocity).float().mean(dim=0)


def sparse_reward(angular_velocity: Tensor) -> Tensor:
    """1 while the speed is right, else 0: fields (N,) to (N,)."""
    return in_band(angular_velocity).float()
