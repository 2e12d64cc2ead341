"""Eureka (Ma et al. 2023): sample, train all, reflect on the best, sample again from there."""

from __future__ import annotations

from dataclasses import dataclass

from synth.candidate import Candidate, commonest
from synth.strategies.base import Budget, Services, best_of
from synth.writers import Context


@dataclass(frozen=True)
class Eureka:
    """K samples a generation, one training each; the best by the metric is the only parent of the next.

    Departures from the paper: the parent is the best reward so far, not the best of the last generation (`elitist`;
    a weak model often falls back); the best few of a generation are trained with two more seeds before one becomes the
    parent; broken answers are repaired with their exact error before they count as lost; the winner is chosen among
    the finalists on new seeds, after the search; there are no restarts.
    """

    name: str = "eureka"
    elitist: bool = True

    def run(self, search: Services, budget: Budget) -> None:
        """See `Strategy.run`."""
        parent: Candidate | None = None
        context = Context()
        for generation in range(budget.generations):
            proposed = search.propose(generation, budget.samples, context)
            candidates = search.confirm(search.train(proposed, budget.env_steps), budget.env_steps)
            search.end_generation(generation, candidates)
            if generation == budget.generations - 1:
                return
            champion = best_of([*([parent] if parent and self.elitist else []), *candidates])
            if champion is None:
                problems = [p for c in candidates for p in c.problems]
                context = Context(failures=tuple(commonest(problems)))
                continue
            parent = champion
            context = search.context_of(parent, candidates)
