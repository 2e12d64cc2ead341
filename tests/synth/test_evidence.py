"""Evidence: the arithmetic against numpy, the advice and the signs on made-up trainings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxes.base import Checkpoint, ComponentStats, Failure, MemberResult, RewardProblem
from synth.evidence import Evidence, correlation, gather_evidence

Curve = list[float]


def member(seed: int, metrics: Curve, rewards: Curve | None = None, **components: list[ComponentStats]) -> MemberResult:
    points = tuple(
        Checkpoint(
            100 * (i + 1),
            metric,
            (rewards or metrics)[i],
            10.0 * (seed + i),
            {name: stats[i] for name, stats in components.items()},
        )
        for i, metric in enumerate(metrics)
    )
    return MemberResult("r", seed, metrics[-1], points, 100 * len(metrics))


def stats(mean: float, share: float = 0.5, std: float = 0.3) -> ComponentStats:
    return ComponentStats(mean, std, mean - 1.0, mean + 1.0, share)


def test_curves_are_means_over_the_seeds() -> None:
    rng = np.random.default_rng(0)
    metrics, rewards = rng.random((3, 5)), rng.normal(size=(3, 5))
    a, b, shares = rng.normal(size=(3, 5)), rng.normal(size=(3, 5)), rng.uniform(0.1, 0.7, size=(3, 5))
    members = [
        member(
            s,
            list(metrics[s]),
            list(rewards[s]),
            a=[stats(m, h) for m, h in zip(a[s], shares[s], strict=True)],
            b=[stats(m) for m in b[s]],
        )
        for s in range(3)
    ]
    got = gather_evidence(members)
    np.testing.assert_allclose(got.metrics, metrics.mean(axis=0))
    np.testing.assert_allclose(got.rewards, rewards.mean(axis=0))
    np.testing.assert_allclose(got.lengths, 10.0 * (1.0 + np.arange(5)))
    assert got.metric == got.metrics[-1]
    assert got.env_steps == (100, 200, 300, 400, 500)
    first = got.component("a")
    assert first is not None
    np.testing.assert_allclose(first.means, a.mean(axis=0))
    np.testing.assert_allclose([first.low, first.high], [a.min() - 1.0, a.max() + 1.0])
    np.testing.assert_allclose(first.share, shares[:, -1].mean())
    np.testing.assert_allclose(first.correlation, np.corrcoef(a.mean(axis=0), metrics.mean(axis=0))[0, 1])
    np.testing.assert_allclose(first.trend, (first.means[-1] - first.means[0]) / (first.high - first.low))
    assert [c.name for c in got.components] == ["a", "b"]
    assert got.component("c") is None


def test_failed_trainings_are_left_out() -> None:
    lost = MemberResult("r", 1, None, (), 0, RewardProblem(Failure.NON_FINITE, "NaN"))
    assert gather_evidence([lost, member(0, [0.1, 0.4])]).metrics == (0.1, 0.4)
    with pytest.raises(ValueError, match="no finished training"):
        gather_evidence([lost])


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=3, max_size=12))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_correlation_is_pearsons(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    got = correlation(first, second)
    if min(np.std(first), np.std(second)) < 1e-6:
        assert got is None or -1.0 <= got <= 1.0
    else:
        assert got == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-6)


@pytest.mark.parametrize(("first", "second"), [([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0.5, 0.5, 0.5])])
def test_no_correlation_where_there_is_none_to_speak_of(first: Curve, second: Curve) -> None:
    assert correlation(first, second) is None


def advice_of(metrics: Curve, means: Curve, share: float, std: float) -> str:
    found = gather_evidence([member(0, metrics, a=[stats(m, share, std) for m in means])]).component("a")
    assert found is not None
    return found.advice


@pytest.mark.parametrize(
    ("means", "share", "std", "advice"),
    [
        ([0.1, 0.2, 0.3], 0.5, 0.3, "keep"),
        ([0.1, 0.2, 0.3], 0.81, 0.3, "rescale"),
        ([0.1, 0.2, 0.3], 0.019, 0.3, "rescale"),
        ([0.1, 0.2, 0.3], 0.5, 0.0, "rewrite"),
        ([0.3, 0.2, 0.1], 0.5, 0.3, "rewrite"),
    ],
)
def test_advice(means: Curve, share: float, std: float, advice: str) -> None:
    assert advice_of([0.1, 0.2, 0.3], means, share, std) == advice


def signs(metrics: Curve, rewards: Curve, *shares: float) -> str:
    parts = {f"c{i}": [stats(0.5, s)] * len(metrics) for i, s in enumerate(shares)}
    found: Evidence = gather_evidence([member(0, metrics, rewards, **parts)])
    return " ".join(found.signs)


def test_signs() -> None:
    assert "near zero" in signs([0.0, 0.04, 0.01], [0.0, 0.0, 0.0])
    assert "hacking" in signs([0.1, 0.1, 0.1], [0.0, 1.0, 2.0])
    assert "hacking" not in signs([0.1, 0.5, 0.9], [0.0, 1.0, 2.0])
    assert "hacking" not in signs([0.1, 0.1, 0.1], [2.0, 1.0, 0.0])
    assert "fell again" in signs([0.1, 0.9, 0.5], [0.0, 0.0, 0.0])
    assert "fell again" not in signs([0.1, 0.9, 0.6], [0.0, 0.0, 0.0])
    assert "c0 makes up 90%" in signs([0.1, 0.5, 0.9], [0.0, 0.1, 0.2], 0.9, 0.1)
    assert signs([0.1, 0.5, 0.9], [0.0, 0.1, 0.2], 1.0) == ""  # a single component cannot drown others


def test_a_constant_component_teaches_nothing() -> None:
    found = gather_evidence([member(0, [0.1, 0.5, 0.9], a=[stats(1.0, 0.5, 0.0)] * 3)])
    assert found.signs == ("a has the same value everywhere: it teaches nothing.",)
