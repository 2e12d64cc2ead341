"""What a run ends with: the JSON that `synth run` prints, and the header of the winning `reward.py`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sandboxes.base import TrainingResult
from synth.candidate import Candidate
from synth.numbers import human_normalised, interval95
from synth.task import Task
from synth.version import VERSION

EXPERT, SPARSE = "expert", "sparse"


@dataclass(frozen=True)
class Score:
    """A reward's final metric over seeds that the search never used."""

    per_seed: tuple[float, ...]
    env_steps: int  # of one training

    @property
    def metric(self) -> float:
        """Mean over the seeds."""
        return fmean(self.per_seed)

    @property
    def ci95(self) -> tuple[float, float] | None:
        """95 % interval of the mean."""
        return interval95(self.per_seed)

    @staticmethod
    def of(result: TrainingResult, reward_id: str) -> Score | None:
        """The score of one reward of a training; None when it was not trained, or failed for a seed."""
        members = result.of(reward_id)
        values = [m.metric for m in members if m.metric is not None]
        if not members or len(values) < len(members):
            return None
        return Score(tuple(values), members[0].env_steps)


@dataclass(frozen=True)
class Final:
    """The winner beside the expert's and the sparse reward, trained together on held-out seeds."""

    winner: Score
    expert: Score | None
    sparse: Score | None

    @property
    def human_normalised(self) -> float | None:
        """See `synth.numbers.human_normalised`."""
        expert = self.expert.metric if self.expert else None
        return human_normalised(self.winner.metric, expert, self.sparse.metric if self.sparse else None)


def score_json(score: Score | None) -> dict[str, Any]:
    """`{metric, ci95, per_seed}`, nulls where there is no score."""
    if score is None:
        return {"metric": None, "ci95": None, "per_seed": []}
    interval = None if score.ci95 is None else [round(v, 4) for v in score.ci95]
    return {
        "metric": round(score.metric, 4),
        "ci95": interval,
        "per_seed": [round(v, 4) for v in score.per_seed],
    }


def lineage(candidate: Candidate, candidates: dict[str, Candidate]) -> list[str]:
    """Ids of the candidate's ancestors, the nearest first."""
    ids: list[str] = []
    parent = candidate.parent
    while parent is not None and parent in candidates and parent not in ids:
        ids.append(parent)
        parent = candidates[parent].parent
    return ids


def with_header(
    source: str, task: Task, measured: str, run: str, how: str, winner: Candidate, parents: Sequence[str]
) -> str:
    """The winning source below comments that say what it is for and what it was measured to do."""
    origin = f"candidate {winner.id}" + (f", from {', '.join(parents)}" if parents else "")
    paragraphs = [
        f"Reward for the task {task.name}, found by reward-synth {VERSION} ({how}).",
        f"Task: {task.description}",
        f"Measured: {measured}",
        f"Run {run}, {origin}.",
    ]
    lines = [line for p in paragraphs for line in textwrap.wrap(p, 100)]
    return "\n".join(f"# {line}" for line in lines) + "\n\n" + source.strip() + "\n"


def measured_words(final: Final, threshold: float) -> str:
    """One sentence with every number of the final comparison."""
    winner = final.winner
    interval = f", 95 % interval {winner.ci95[0]:.3f} to {winner.ci95[1]:.3f}" if winner.ci95 else ""
    parts = [
        f"metric {winner.metric:.3f} (mean of {len(winner.per_seed)} seeds{interval}; "
        f"{winner.env_steps:,} environment steps each)"
    ]
    if final.expert:
        parts.append(f"the expert's reward {final.expert.metric:.3f}")
    if final.sparse:
        parts.append(f"the sparse reward {final.sparse.metric:.3f}")
    if final.human_normalised is not None:
        parts.append(f"human-normalised score {final.human_normalised:.2f}")
    return "; ".join(parts) + f". The task counts as solved from {threshold:.2f}."
