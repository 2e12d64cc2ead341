"""Share of the episode with the pole within 6 degrees of upright and the cart within 1 m of the middle."""

import torch
from torch import Tensor


def steady(cart_position: Tensor, pole_angle: Tensor) -> Tensor:
    """Bool, same shape as the inputs."""
    return (torch.abs(pole_angle) < 0.105) & (torch.abs(cart_position) < 1.0)


def compute_metric(cart_position: Tensor, pole_angle: Tensor, valid: Tensor) -> Tensor:
    """Fields (T, B) of whole episodes to the metric (B,) in [0, 1]; what follows an early end counts as failed."""
    return (steady(cart_position, pole_angle) & valid).float().mean(dim=0)


def sparse_reward(cart_position: Tensor, pole_angle: Tensor) -> Tensor:
    """1 while steady, else 0: fields (N,) to (N,)."""
    return steady(cart_position, pole_angle).float()
