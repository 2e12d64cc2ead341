"""A candidate: one reward's source, where it comes from, and all that was measured of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from pydantic import TypeAdapter

from sandboxes.base import CheckReport, MemberResult, RewardProblem

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Candidate:
    """One answer of the Coder and what became of it. Changes make a new object; the store keeps the last."""

    id: str
    generation: int
    origin: Literal["new", "mutation"]
    answer: str  # the model's text, as it came
    source: str | None  # None when the answer held no code
    parent: str | None = None
    repairs: int = 0  # repair rounds it took
    problems: tuple[RewardProblem, ...] = ()
    report: CheckReport | None = None
    members: tuple[MemberResult, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether it may be trained."""
        return self.source is not None and not self.problems and self.report is not None and self.report.ok

    @property
    def trained(self) -> bool:
        """Whether every one of its trainings ended with a metric."""
        return bool(self.members) and all(m.metric is not None for m in self.members)

    @property
    def metric(self) -> float | None:
        """Mean of the metric over its trainings; None while there is none."""
        values = [m.metric for m in self.members if m.metric is not None]
        return fmean(values) if self.trained else None

    def failed(self, *problems: RewardProblem) -> Candidate:
        """The same with these problems."""
        return replace(self, problems=tuple(problems))

    def measured(self, members: list[MemberResult]) -> Candidate:
        """The same with its trainings; a training's failure is a problem of the candidate."""
        problems = tuple(dict.fromkeys(m.problem for m in members if m.problem is not None))
        return replace(self, members=tuple(members), problems=problems)

    def as_json(self) -> dict[str, Any]:
        """For the run folder. What UTF-8 cannot say (half a surrogate pair) becomes a question mark."""
        source = None if self.source is None else _sayable(self.source)
        plain = replace(self, answer=_sayable(self.answer), source=source)
        return {"schema_version": SCHEMA_VERSION, **json.loads(_ADAPTER.dump_json(plain))}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Candidate:
        """Inverse of `as_json`."""
        return _ADAPTER.validate_python({k: v for k, v in data.items() if k != "schema_version"})


_ADAPTER = TypeAdapter(Candidate)


def _sayable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def commonest(problems: list[RewardProblem], limit: int = 3) -> list[tuple[RewardProblem, int]]:
    """The most frequent problems with their counts, alike ones (same kind, same words) taken together."""
    counts: dict[tuple[str, str], tuple[RewardProblem, int]] = {}
    for problem in problems:
        key = (problem.kind.value, problem.message)
        first, count = counts.get(key, (problem, 0))
        counts[key] = (first, count + 1)
    return sorted(counts.values(), key=lambda pair: -pair[1])[:limit]


def text_digest(text: str) -> str:
    """Short hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
