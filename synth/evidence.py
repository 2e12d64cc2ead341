"""What a training says about a reward, computed without any model: curves, shares, trends, signs of reward hacking.

Everything here is arithmetic on `sandboxes.base.Checkpoint`; docs/glossary.md explains each number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from sandboxes.base import Checkpoint, MemberResult

FLAT = 1e-3  # a component whose values spread less than this share of its size is flat
DOMINANT = 0.8  # share of the reward's size from which a component drowns the others
FAINT = 0.02  # share below which the policy hardly notices a component


@dataclass(frozen=True)
class ComponentEvidence:
    """One component over a training."""

    name: str
    means: tuple[float, ...]  # at each checkpoint
    low: float
    high: float
    std: float  # at the last checkpoint
    share: float  # of the reward's size at the last checkpoint
    correlation: float | None  # of the means with the metric over the checkpoints
    advice: str  # keep, rescale, rewrite or drop

    @property
    def trend(self) -> float:
        """Last mean minus first, as a share of the range seen."""
        spread = max(self.high - self.low, 1e-12)
        return (self.means[-1] - self.means[0]) / spread


@dataclass(frozen=True)
class Evidence:
    """One trained reward: its metric, its return and its components at the checkpoints."""

    metric: float
    env_steps: tuple[int, ...]
    metrics: tuple[float, ...]
    rewards: tuple[float, ...]  # mean reward per step
    lengths: tuple[float, ...]  # mean episode length in steps
    components: tuple[ComponentEvidence, ...]
    signs: tuple[str, ...]  # sentences about the whole

    def component(self, name: str) -> ComponentEvidence | None:
        """The component of that name."""
        return next((c for c in self.components if c.name == name), None)


def gather_evidence(members: Sequence[MemberResult]) -> Evidence:
    """Evidence of a reward from its trainings; curves are means over the seeds.

    Raises:
        ValueError: no training with checkpoints.
    """
    curves = [m.checkpoints for m in members if m.metric is not None and m.checkpoints]
    if not curves:
        raise ValueError("no finished training to gather evidence from")
    points = list(zip(*curves, strict=True))  # for each checkpoint, one per seed
    metrics = tuple(fmean(c.metric for c in p) for p in points)
    rewards = tuple(fmean(c.reward for c in p) for p in points)
    lengths = tuple(fmean(c.episode_length for c in p) for p in points)
    names = list(points[-1][0].components)
    parts = tuple(_component(name, points, metrics) for name in names)
    return Evidence(
        metric=metrics[-1],
        env_steps=tuple(p[0].env_steps for p in points),
        metrics=metrics,
        rewards=rewards,
        lengths=lengths,
        components=parts,
        signs=tuple(_signs(metrics, rewards, parts)),
    )


def _component(name: str, points: list[tuple[Checkpoint, ...]], metrics: tuple[float, ...]) -> ComponentEvidence:
    stats = [[c.components[name] for c in p if name in c.components] for p in points]
    means = tuple(fmean(s.mean for s in row) if row else math.nan for row in stats)
    last = stats[-1]
    low, high = min(s.min for row in stats for s in row), max(s.max for row in stats for s in row)
    share, std = fmean(s.share for s in last), fmean(s.std for s in last)
    together = correlation(means, metrics)
    size = max(abs(low), abs(high), 1e-12)
    return ComponentEvidence(name, means, low, high, std, share, together, _advice(share, std / size, together))


def _advice(share: float, spread: float, together: float | None) -> str:
    """Eureka's tips as a rule: flat or faint terms need another scale or form, a dominant one a smaller scale."""
    if spread < FLAT:
        return "rewrite"
    if share > DOMINANT or share < FAINT:
        return "rescale"
    if together is not None and together < -0.5:
        return "rewrite"
    return "keep"


def _signs(metrics: tuple[float, ...], rewards: tuple[float, ...], parts: tuple[ComponentEvidence, ...]) -> list[str]:
    signs = []
    if max(metrics) < 0.05:
        signs.append("The metric stayed near zero: this reward does not lead to the task; rewrite it.")
    elif metrics[-1] < 0.6 * max(metrics):
        signs.append("The metric fell again after its best checkpoint: the reward pays for something else.")
    spread = max(rewards) - min(rewards)
    if len(metrics) > 2 and spread > 0 and (rewards[-1] - rewards[0]) > 0.5 * spread and max(metrics) < 0.2:
        signs.append("The reward rose while the metric did not: a sign of reward hacking.")
    for part in parts:
        if part.share > DOMINANT and len(parts) > 1:
            signs.append(f"{part.name} makes up {part.share:.0%} of the reward and drowns the other components.")
        elif part.std == 0.0:
            signs.append(f"{part.name} has the same value everywhere: it teaches nothing.")
    return signs


def correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation; None when one of them is constant or they are shorter than three."""
    if len(first) < 3 or pstdev(first) < 1e-9 or pstdev(second) < 1e-9:
        return None
    mean_1, mean_2 = fmean(first), fmean(second)
    cross = fmean((a - mean_1) * (b - mean_2) for a, b in zip(first, second, strict=True))
    return max(-1.0, min(1.0, cross / (pstdev(first) * pstdev(second))))
