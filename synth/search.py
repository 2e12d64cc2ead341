"""The search's record and services: what strategies ask for, done, counted, stored and reported."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandboxes.base import RewardSource, Sandbox, TrainingRequest, TrainingResult
from synth.candidate import Candidate, commonest
from synth.coder import Coder
from synth.evaluator import Evaluator
from synth.evidence import gather_evidence
from synth.store import RunStore
from synth.strategies.base import best_of
from synth.task import Task
from synth.writers import Context

CONFIRMED = 3  # candidates of a generation that are trained with more seeds


class Listener(Protocol):
    """Hears how a run goes. The command line shows it; the default hears nothing."""

    def stage(self, text: str) -> None:
        """What is being done now, in words."""

    def progress(self, done: int, total: int) -> None:
        """How far the present stage is."""

    def generation(self, index: int, candidates: Sequence[Candidate], best: Candidate | None) -> None:
        """A generation has ended; `best` is the best of the whole run so far."""

    def warning(self, text: str) -> None:
        """Something the user should know."""


class Silent:
    """A listener that does nothing."""

    def stage(self, text: str) -> None:
        """See `Listener.stage`."""

    def progress(self, done: int, total: int) -> None:
        """See `Listener.progress`."""

    def generation(self, index: int, candidates: Sequence[Candidate], best: Candidate | None) -> None:
        """See `Listener.generation`."""

    def warning(self, text: str) -> None:
        """See `Listener.warning`."""


@dataclass
class Spent:
    """What the run has used so far."""

    env_steps: int = 0
    llm_s: float = 0.0
    train_s: float = 0.0


@dataclass
class Search:
    """Implements `synth.strategies.base.Services`."""

    task: Task
    coder: Coder
    evaluator: Evaluator
    sandbox: Sandbox
    store: RunStore
    listener: Listener
    seed: int
    candidates: dict[str, Candidate] = field(default_factory=dict)
    generations: list[dict[str, object]] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)

    def propose(self, generation: int, count: int, context: Context) -> list[Candidate]:
        """See `Services.propose`."""
        start = time.monotonic()
        label = f"generation {generation}: "
        proposed = self.coder.propose(
            generation,
            count,
            self.derived_seed("propose", generation),
            context,
            lambda t: self.listener.stage(label + t),
        )
        self.spent.llm_s += time.monotonic() - start
        for candidate in proposed:
            self._keep(candidate)
        self.store.event(
            "proposed", generation=generation, candidates=len(proposed), valid=sum(c.valid for c in proposed)
        )
        return proposed

    def train(self, candidates: Sequence[Candidate], env_steps: int) -> list[Candidate]:
        """See `Services.train`."""
        fit = [c for c in candidates if c.valid]
        if not fit:
            return list(candidates)
        generation = fit[0].generation
        self.listener.stage(f"generation {generation}: training {len(fit)} rewards at once")
        result = self.train_members([(c.id, c.source) for c in fit], (self.training_seed(),), env_steps)
        measured = {c.id: c.measured(result.of(c.id)) for c in fit}
        for candidate in measured.values():
            self._keep(candidate)
        return [measured.get(c.id, c) for c in candidates]

    def confirm(self, candidates: Sequence[Candidate], env_steps: int) -> list[Candidate]:
        """See `Services.confirm`."""
        promising = [c for c in candidates if c.trained and (c.metric or 0.0) > 0.0]
        promising = sorted(promising, key=lambda c: -(c.metric or 0.0))[:CONFIRMED]
        if not promising:
            return list(candidates)
        self.listener.stage(f"generation {promising[0].generation}: training the {len(promising)} best with more seeds")
        first = self.training_seed()
        result = self.train_members([(c.id, c.source) for c in promising], (first + 1, first + 2), env_steps)
        measured = {c.id: c.measured([*c.members, *result.of(c.id)]) for c in promising}
        for candidate in measured.values():
            self._keep(candidate)
        return [measured.get(c.id, c) for c in candidates]

    def training_seed(self) -> int:
        """The first seed of this run's trainings: the same for all candidates, which makes them comparable."""
        return 1000 + self.derived_seed("train") % 9000

    def train_members(
        self, rewards: Sequence[tuple[str, str | None]], seeds: tuple[int, ...], env_steps: int
    ) -> TrainingResult:
        """One population training of (id, source) rewards; a None source is the task's sparse reward."""
        sources = tuple(RewardSource(identity, source) for identity, source in rewards)
        request = TrainingRequest(self.task, sources, seeds, env_steps)
        result = self.sandbox.train(request, self.listener.progress)
        self.spent.env_steps += result.env_steps
        self.spent.train_s += result.wall_s
        self.store.event(
            "trained",
            rewards=[identity for identity, _ in rewards],
            seeds=list(seeds),
            env_steps=result.env_steps,
            wall_s=round(result.wall_s, 3),
        )
        return result

    def context_of(self, parent: Candidate, failures: Sequence[Candidate]) -> Context:
        """See `Services.context_of`."""
        evidence = gather_evidence(parent.members)
        self.listener.stage(f"reflecting on {parent.id}")
        start = time.monotonic()
        reflection = self.evaluator.reflect(parent, evidence, self.derived_seed("reflect", parent.id))
        self.spent.llm_s += time.monotonic() - start
        self.store.event(
            "reflected",
            candidate=parent.id,
            verdicts=reflection.verdicts,
            by_model=reflection.by_model,
            reflection=reflection.text,
        )
        problems = [p for c in failures for p in c.problems]
        return Context(parent, evidence, reflection.text, reflection.verdicts, tuple(commonest(problems)))

    def end_generation(self, generation: int, candidates: Sequence[Candidate]) -> None:
        """See `Services.end_generation`."""
        best = best_of(candidates)
        metric = None if best is None else best.metric
        self.generations.append({"index": generation, "best_metric": metric})
        self.store.event(
            "generation", generation=generation, best=None if best is None else best.id, best_metric=metric
        )
        self.listener.generation(generation, candidates, self.best())

    def best(self) -> Candidate | None:
        """The best candidate of the run so far, by its training in the search."""
        return best_of(list(self.candidates.values()))

    def derived_seed(self, *parts: object) -> int:
        """A seed for one purpose, from the run's seed: other purposes, other numbers."""
        text = "/".join(str(p) for p in (self.seed, *parts))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") & 0x7FFFFFFF

    def _keep(self, candidate: Candidate) -> None:
        self.candidates[candidate.id] = candidate
        self.store.save(candidate)
