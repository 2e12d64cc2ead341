"""Share of the episode's second half with the fingertip within 5 cm of the goal."""

import torch
from torch import Tensor


def at_goal(fingertip_pos: Tensor, goal_pos: Tensor) -> Tensor:
    """Positions (..., 2) to bool (...)."""
    return torch.linalg.vector_norm(fingertip_pos - goal_pos, dim=-1) < 0.05


def compute_metric(fingertip_pos: Tensor, goal_pos: Tensor) -> Tensor:
    """Positions (T, B, 2) of whole episodes to the metric (B,) in [0, 1]; the first half is for the way."""
    half = fingertip_pos.shape[0] // 2
    return at_goal(fingertip_pos[half:], goal_pos[half:]).float().mean(dim=0)


def sparse_reward(fingertip_pos: Tensor, goal_pos: Tensor) -> Tensor:
    """1 at the goal, else 0: positions (N, 2) to (N,)."""
    return at_goal(fingertip_pos, goal_pos).float()
