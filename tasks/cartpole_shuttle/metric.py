"""Share of the episode's second half with the cart within 0.15 m of the target and the pole near upright."""

import torch
from torch import Tensor


def arrived(cart_position: Tensor, target_position: Tensor, pole_angle: Tensor) -> Tensor:
    """Bool, same shape as the inputs."""
    return (torch.abs(cart_position - target_position) < 0.15) & (torch.abs(pole_angle) < 0.2)


def compute_metric(cart_position: Tensor, target_position: Tensor, pole_angle: Tensor, valid: Tensor) -> Tensor:
    """Fields (T, B) of whole episodes to the metric (B,) in [0, 1]; what follows an early end counts as failed.

    The first half is the time the way may take.
    """
    good = arrived(cart_position, target_position, pole_angle) & valid
    return good[good.shape[0] // 2 :].float().mean(dim=0)


def sparse_reward(cart_position: Tensor, target_position: Tensor, pole_angle: Tensor) -> Tensor:
    """1 while at the target with the pole up, else 0: fields (N,) to (N,)."""
    return arrived(cart_position, target_position, pole_angle).float()
