"""What a strategy is, and what it may ask of the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from synth.candidate import Candidate
from synth.writers import Context


@dataclass(frozen=True)
class Budget:
    """How much a strategy may spend."""

    generations: int
    samples: int
    env_steps: int  # for one training


class Services(Protocol):
    """The search as a strategy sees it (`synth.search.Search`)."""

    def propose(self, generation: int, count: int, context: Context) -> list[Candidate]:
        """Ask the Coder; candidates are recorded, valid or not."""

    def train(self, candidates: Sequence[Candidate], env_steps: int) -> list[Candidate]:
        """Train the valid ones together, one seed each; all are returned, measured or with their problem."""

    def confirm(self, candidates: Sequence[Candidate], env_steps: int) -> list[Candidate]:
        """Train the best few again with two more seeds; their metric becomes the mean over all three."""

    def context_of(self, parent: Candidate, failures: Sequence[Candidate]) -> Context:
        """Evidence, the Evaluator's reflection and verdicts for a trained parent."""

    def end_generation(self, generation: int, candidates: Sequence[Candidate]) -> None:
        """Record and report the generation."""


class Strategy(Protocol):
    """A search policy: what to ask for next, whom to train, whom to keep."""

    @property
    def name(self) -> str:
        """What `--strategy` calls it."""

    def run(self, search: Services, budget: Budget) -> None:
        """Search until the budget is used; everything found is in the search's record."""


def best_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """The trained candidate with the highest metric, the earliest of equals.

    Candidates that were trained with fewer seeds than others do not compete: one lucky training is no evidence.
    """
    trained = [c for c in candidates if c.trained]
    most = max((len(c.members) for c in trained), default=0)
    return max((c for c in trained if len(c.members) == most), key=lambda c: c.metric or 0.0, default=None)
