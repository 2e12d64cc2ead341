"""Share of the episode's second half spent within 15 cm of the goal."""

import torch
from torch import Tensor


def at_goal(position: Tensor, goal_pos: Tensor) -> Tensor:
    """Positions (..., 2) to bool (...)."""
    return torch.linalg.vector_norm(position - goal_pos, dim=-1) < 0.15


def compute_metric(position: Tensor, goal_pos: Tensor) -> Tensor:
    """Positions (T, B, 2) of whole episodes to the metric (B,) in [0, 1]; the first half is for the way."""
    half = position.shape[0] // 2
    return at_goal(position[half:], goal_pos[half:]).float().mean(dim=0)


def sparse_reward(position: Tensor, goal_pos: Tensor) -> Tensor:
    """1 at the goal, else 0: positions (N, 2) to (N,)."""
    return at_goal(position, goal_pos).float()
