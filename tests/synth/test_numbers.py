"""The statistics that are printed, against values of printed tables and other arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from synth.numbers import human_normalised, interval95


@pytest.mark.parametrize(
    ("count", "t"), [(2, 12.7062), (3, 4.30265), (5, 2.77645), (10, 2.26216), (21, 2.08596), (31, 2.04227)]
)
def test_interval_is_students(count: int, t: float) -> None:
    values = np.linspace(0.4, 0.45, count)
    half = t * values.std(ddof=1) / math.sqrt(count)
    got = interval95([float(v) for v in values])
    assert got is not None
    np.testing.assert_allclose(got, (max(0.0, values.mean() - half), values.mean() + half), rtol=2e-4)


def test_interval_between_table_rows_is_no_narrower_than_the_truth() -> None:
    values = [0.4 + 0.001 * i for i in range(24)]  # 23 degrees of freedom: t is 2.0687
    got = interval95(values)
    assert got is not None
    half = (got[1] - got[0]) / 2
    true = 2.0687 * float(np.std(values, ddof=1)) / math.sqrt(24)
    assert true <= half < 1.02 * true


def test_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(4000):
        got = interval95([float(v) for v in rng.normal(0.5, 0.02, size=4)])
        assert got is not None
        hits += got[0] <= 0.5 <= got[1]
    assert hits / 4000 == pytest.approx(0.95, abs=0.011)


def test_interval_stays_within_the_metric_and_needs_two_values() -> None:
    assert interval95([0.0, 1.0]) == (0.0, 1.0)
    assert interval95([0.7, 0.7, 0.7]) == pytest.approx((0.7, 0.7))
    assert interval95([0.5]) is None
    assert interval95([]) is None


@pytest.mark.parametrize(
    ("metric", "expert", "sparse", "score"),
    [
        (0.8, 0.8, 0.2, 1.0),
        (0.2, 0.8, 0.2, 0.0),
        (0.5, 0.8, 0.2, 0.5),
        (0.9, 0.5, 0.1, 2.0),
        (0.6, 0.2, 0.5, 1 / 3),  # the sparse reward beats the expert's: better than sparse is still positive
        (0.5, None, 0.2, None),
        (0.5, 0.2, None, None),
        (0.5, 0.3, 0.3, None),
    ],
)
def test_human_normalised(metric: float, expert: float | None, sparse: float | None, score: float | None) -> None:
    got = human_normalised(metric, expert, sparse)
    assert got == (None if score is None else pytest.approx(score))
