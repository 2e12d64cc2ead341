"""Share of the episode's second half spent hovering: within 20 cm of the goal and slower than 0.5 m/s."""

import torch
from torch import Tensor


def hovering(position: Tensor, velocity: Tensor, goal_pos: Tensor) -> Tensor:
    """Vectors (..., 3) to bool (...)."""
    near = torch.linalg.vector_norm(position - goal_pos, dim=-1) < 0.2
    return near & (torch.linalg.vector_norm(velocity, dim=-1) < 0.5)


def compute_metric(position: Tensor, velocity: Tensor, goal_pos: Tensor, valid: Tensor) -> Tensor:
    """Fields (T, B, 3) of whole episodes to the metric (B,) in [0, 1]; what follows an early end counts as failed."""
    good = hovering(position, velocity, goal_pos) & valid
    return good[good.shape[0] // 2 :].float().mean(dim=0)


def sparse_reward(position: Tensor, velocity: Tensor, goal_pos: Tensor) -> Tensor:
    """1 while hovering at the goal, else 0: vectors (N, 3) to (N,)."""
    return hovering(position, velocity, goal_pos).float()
