"""Share of the episode's last two fifths spent parked: within 15 cm and 0.3 rad of the goal, slower than 0.15 m/s."""

import torch
from torch import Tensor


def parked(position: Tensor, goal_pos: Tensor, heading_left: Tensor, speed: Tensor) -> Tensor:
    """Bool; positions (..., 2), the others (...)."""
    near = torch.linalg.vector_norm(position - goal_pos, dim=-1) < 0.15
    return near & (torch.abs(heading_left) < 0.3) & (torch.abs(speed) < 0.15)


def compute_metric(position: Tensor, goal_pos: Tensor, heading_left: Tensor, speed: Tensor, valid: Tensor) -> Tensor:
    """Fields (T, B, ...) of whole episodes to the metric (B,) in [0, 1]; what follows an early end counts as failed."""
    good = parked(position, goal_pos, heading_left, speed) & valid
    return good[3 * good.shape[0] // 5 :].float().mean(dim=0)


def sparse_reward(position: Tensor, goal_pos: Tensor, heading_left: Tensor, speed: Tensor) -> Tensor:
    """1 while parked, else 0: fields (N, ...) to (N,)."""
    return parked(position, goal_pos, heading_left, speed).float()
