"""Share of the episode's second half spent on the orbit: within 20 cm of it, counter-clockwise, at 0.6 m/s or more."""

import torch
from torch import Tensor

RADIUS = 1.0  # m
MIN_SPEED = 0.6  # m/s, along the circle


def on_orbit(position: Tensor, heading: Tensor, speed: Tensor) -> Tensor:
    """Bool; positions (..., 2), the others (...)."""
    distance = torch.linalg.vector_norm(position, dim=-1)
    velocity_x, velocity_y = speed * torch.cos(heading), speed * torch.sin(heading)
    around = (position[..., 0] * velocity_y - position[..., 1] * velocity_x) / distance.clamp(min=1e-3)
    return (torch.abs(distance - RADIUS) < 0.2) & (around > MIN_SPEED)


def compute_metric(position: Tensor, heading: Tensor, speed: Tensor, valid: Tensor) -> Tensor:
    """Fields (T, B, ...) of whole episodes to the metric (B,) in [0, 1]; what follows an early end counts as failed."""
    good = on_orbit(position, heading, speed) & valid
    return good[good.shape[0] // 2 :].float().mean(dim=0)


def sparse_reward(position: Tensor, heading: Tensor, speed: Tensor) -> Tensor:
    """1 while on the orbit, else 0: fields (N, ...) to (N,)."""
    return on_orbit(position, heading, speed).float()
