"""Share of the episode spent balanced: within 0.2 rad of upright and slower than 1 rad/s."""

import torch
from torch import Tensor


def balanced(angle: Tensor, angular_velocity: Tensor) -> Tensor:
    """Bool, same shape as the inputs."""
    return (torch.abs(angle) < 0.2) & (torch.abs(angular_velocity) < 1.0)


def compute_metric(angle: Tensor, angular_velocity: Tensor) -> Tensor:
    """Fields (T, B) of whole episodes to the metric (B,) in [0, 1]."""
    return balanced(angle, angular_velocity).float().mean(dim=0)


def sparse_reward(angle: Tensor, angular_velocity: Tensor) -> Tensor:
    """1 while balanced, else 0: fields (N,) to (N,)."""
    return balanced(angle, angular_velocity).float()
