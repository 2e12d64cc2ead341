"""Counter-based random numbers: environment b's draws depend on its seed and its episode alone.

No generator state exists, so results do not change with the number of neighbours, with their resets, or across a
resume. The mixer is SplitMix64's finaliser (Steele, Lea, Flood 2014) in wrapping int64 arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical (unsigned) right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix64(x: Tensor) -> Tensor:
    """Scramble int64 values, same shape; a bijection on 64 bits."""
    x = x + _GOLDEN
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


def uniform(seeds: Tensor, counter: Tensor, count: int) -> Tensor:
    """`count` uniform numbers in [0, 1) for each seed and counter.

    Args:
        seeds: (B,) int64. counter: (B,) int64, e.g. the episode's number.

    Returns:
        (B, count) float32, multiples of 2^-24.
    """
    lane = torch.arange(count, device=seeds.device, dtype=torch.int64)
    base = mix64(mix64(seeds) + counter)
    bits = mix64(base.unsqueeze(-1) + lane)
    return _shift_right(bits, 40).to(torch.float32) * (1.0 / (1 << 24))


def env_seeds(member_seed: int, num_envs: int, stream: int = 0) -> Tensor:
    """(num_envs,) int64 seeds of one member's environments; `stream` separates training from evaluation."""
    start = torch.full((num_envs,), member_seed, dtype=torch.int64)
    return mix64(mix64(mix64(start) + stream) + torch.arange(num_envs, dtype=torch.int64))
