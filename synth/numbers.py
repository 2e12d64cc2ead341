"""The few statistics the engine prints, in one place; docs/glossary.md explains them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

# Two-sided 95 % points of Student's t by degrees of freedom.
_T95 = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086,
    25: 2.060, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980,
}  # fmt: skip


def interval95(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the mean of metric values by Student's t, cut to [0, 1]; None for fewer than two values."""
    if len(values) < 2:
        return None
    freedom = len(values) - 1
    t = _T95[max(k for k in _T95 if k <= freedom)]
    half = t * stdev(values) / math.sqrt(len(values))
    mean = fmean(values)
    return max(0.0, mean - half), min(1.0, mean + half)


def human_normalised(metric: float, expert: float | None, sparse: float | None) -> float | None:
    """(M - S) / |H - S|: 1 is as good as the expert's reward, 0 as good as the sparse one."""
    if expert is None or sparse is None or abs(expert - sparse) < 1e-6:
        return None
    return (metric - sparse) / abs(expert - sparse)
