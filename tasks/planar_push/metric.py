"""Share of the episode's last two fifths with the puck within 8 cm of the goal."""

import torch
from torch import Tensor


def at_goal(puck_pos: Tensor, goal_pos: Tensor) -> Tensor:
    """Positions (..., 2) to bool (...)."""
    return torch.linalg.vector_norm(puck_pos - goal_pos, dim=-1) < 0.08


def compute_metric(puck_pos: Tensor, goal_pos: Tensor) -> Tensor:
    """Positions (T, B, 2) of whole episodes to the metric (B,) in [0, 1]; the beginning is for the way."""
    start = 3 * puck_pos.shape[0] // 5
    return at_goal(puck_pos[start:], goal_pos[start:]).float().mean(dim=0)


def sparse_reward(puck_pos: Tensor, goal_pos: Tensor) -> Tensor:
    """1 while the puck is at the goal, else 0: positions (N, 2) to (N,)."""
    return at_goal(puck_pos, goal_pos).float()
