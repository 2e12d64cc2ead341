"""Share of the episode spent balanced: pole within 0.25 rad of upright and slow, cart within 1 m of the middle."""

import torch
from torch import Tensor


def balanced(cart_position: Tensor, pole_angle: Tensor, pole_velocity: Tensor) -> Tensor:
    """Bool, same shape as the inputs."""
    upright = (torch.abs(pole_angle) < 0.25) & (torch.abs(pole_velocity) < 2.0)
    return upright & (torch.abs(cart_position) < 1.0)


def compute_metric(cart_position: Tensor, pole_angle: Tensor, pole_velocity: Tensor, valid: Tensor) -> Tensor:
    """Fields (T, B) of whole episodes to the metric (B,) in [0, 1]; what follows an early end counts as failed."""
    return (balanced(cart_position, pole_angle, pole_velocity) & valid).float().mean(dim=0)


def sparse_reward(cart_position: Tensor, pole_angle: Tensor, pole_velocity: Tensor) -> Tensor:
    """1 while balanced, else 0: fields (N,) to (N,)."""
    return balanced(cart_position, pole_angle, pole_velocity).float()
