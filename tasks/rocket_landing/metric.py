"""1 for a soft landing; else up to a half: how near to the pad the episode ended, and how slowly."""

import torch
from torch import Tensor


def compute_metric(position: Tensor, velocity: Tensor, landed: Tensor) -> Tensor:
    """Fields (T, B, ...) of whole episodes, the last state held after the end, to the metric (B,) in [0, 1]."""
    near = torch.exp(-torch.linalg.vector_norm(position[-1], dim=-1) / 3.0)
    slow = torch.exp(-torch.linalg.vector_norm(velocity[-1], dim=-1) / 3.0)
    return torch.where(landed.any(dim=0), torch.ones_like(near), 0.5 * near * slow)


def sparse_reward(landed: Tensor) -> Tensor:
    """1 at a soft landing, else 0: (N,) bool to (N,)."""
    return landed.float()
