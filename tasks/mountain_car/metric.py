"""1 when the flag is reached; else half of the greatest height gained on its hill, as a share of the flag's."""

import torch
from torch import Tensor

FLAG = 0.45  # m
VALLEY = -torch.pi / 6.0  # m, where the ground is lowest


def compute_metric(position: Tensor) -> Tensor:
    """Positions (T, B) of whole episodes to the metric (B,) in [0, 1]; below 0.5 without the flag.

    The last position is repeated after an early end, which changes no maximum.
    """
    furthest = position.amax(dim=0).clamp(VALLEY, FLAG)
    flag_height = torch.sin(torch.tensor(3.0 * FLAG)) + 1.0
    climbed = (torch.sin(3.0 * furthest) + 1.0) / flag_height.to(position.device)
    return torch.where(furthest >= FLAG, torch.ones_like(climbed), 0.5 * climbed.clamp(0.0, 1.0))


def sparse_reward(position: Tensor) -> Tensor:
    """1 at the flag, else 0: fields (N,) to (N,)."""
    return (position >= FLAG).float()
