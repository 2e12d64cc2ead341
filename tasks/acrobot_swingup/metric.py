"""How soon the tip is up: at least 0.5 when it got there, at most 0.5, by its greatest height, when it did not."""

import torch
from torch import Tensor

BAR = 1.0  # m above the pivot
HANGING = -2.0  # m


def compute_metric(tip_height: Tensor, valid: Tensor) -> Tensor:
    """Heights (T, B) of whole episodes to the metric (B,) in [0, 1].

    The episode ends when the tip is above the bar. What is left of it then counts as much as getting there.
    """
    highest = tip_height.amax(dim=0)
    spared = 1.0 - valid.float().mean(dim=0)
    climbed = ((highest - HANGING) / (BAR - HANGING)).clamp(0.0, 1.0)
    return torch.where(highest > BAR, 0.5 + 0.5 * spared, 0.5 * climbed)


def sparse_reward(tip_height: Tensor) -> Tensor:
    """1 when the tip is up, else 0: fields (N,) to (N,)."""
    return (tip_height > BAR).float()
