"""The Coder: from what the search knows to candidates that are valid, repaired where that helps, and distinct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sandboxes.base import CheckReport, Failure, RewardProblem, Sandbox
from synth.candidate import Candidate
from synth.reward import parse_reward
from synth.task import Task
from synth.writers import Answer, Context, Writer

_NO_CODE = RewardProblem(
    Failure.NO_CODE, "the answer holds no reward function; answer with the whole file in one ```python block"
)


class Coder:
    """Asks a writer, checks every answer in the sandbox, and feeds exact errors back for `repair_rounds` rounds."""

    def __init__(self, writer: Writer, task: Task, sandbox: Sandbox, repair_rounds: int = 2) -> None:
        self.writer, self.task, self.sandbox = writer, task, sandbox
        self.repair_rounds = repair_rounds if writer.can_repair else 0
        self._seen: dict[str, str] = {}  # normalised source or fingerprint to candidate

    def remember(self, candidates: Sequence[Candidate]) -> None:
        """Take note of candidates from elsewhere, so that none is proposed again."""
        for candidate in candidates:
            if candidate.source is not None and candidate.valid:
                self._duplicate(candidate, candidate.source)

    def propose(
        self, generation: int, count: int, seed: int, context: Context, note: Callable[[str], None] = lambda _: None
    ) -> list[Candidate]:
        """`count` candidates for this generation, valid or with the problems that remained.

        Args:
            seed: decides everything random in the answers.
            note: told in words what is being done.
        """
        note(f"asking for {count} rewards")
        answers = self.writer.write(count, seed, context)
        parent = context.parent.id if context.parent else None
        candidates = [
            Candidate(
                id=f"g{generation}-{index:02d}",
                generation=generation,
                origin=answer.origin,
                answer=answer.text,
                source=answer.source,
                parent=parent if answer.origin == "mutation" else None,
            )
            for index, answer in enumerate(answers)
        ]
        note("checking them")
        candidates = self._checked(candidates)
        for attempt in range(1, self.repair_rounds + 1):
            broken = [i for i, c in enumerate(candidates) if not c.valid]
            if not broken:
                break
            note(f"repairing {len(broken)} of them, round {attempt}")
            tries = [(answers[i], candidates[i].problems) for i in broken]
            repaired = self.writer.repair(tries, seed + 1000 * attempt)
            again = self._checked([_retried(candidates[i], a) for i, a in zip(broken, repaired, strict=True)])
            for place, answer, candidate in zip(broken, repaired, again, strict=True):
                answers[place], candidates[place] = answer, candidate
        return [self._distinct(c) for c in candidates]

    def _checked(self, candidates: list[Candidate]) -> list[Candidate]:
        """The static gate, then one call on recorded states for what passed it."""
        gated = []
        for candidate in candidates:
            if candidate.source is None:
                gated.append(candidate.failed(_NO_CODE))
                continue
            gated.append(candidate.failed(*parse_reward(candidate.source, self.task).problems))
        fit = [i for i, c in enumerate(gated) if not c.problems]
        reports = self.sandbox.check(self.task, [gated[i].source or "" for i in fit])
        for place, report in zip(fit, reports, strict=True):
            gated[place] = _with_report(gated[place], report)
        return gated

    def _distinct(self, candidate: Candidate) -> Candidate:
        if not candidate.valid or candidate.source is None:
            return candidate
        first = self._duplicate(candidate, candidate.source)
        if first is None:
            return candidate
        return candidate.failed(RewardProblem(Failure.DUPLICATE, f"the same reward as {first}"))

    def _duplicate(self, candidate: Candidate, source: str) -> str | None:
        """The earlier candidate that says the same, by its normalised source or by its values on recorded states."""
        code = parse_reward(source, self.task).code
        keys = [code.digest] if code is not None else []
        if candidate.report is not None and candidate.report.fingerprint:
            keys.append(candidate.report.fingerprint)
        first = next((self._seen[k] for k in keys if k in self._seen), None)
        for key in keys:
            self._seen.setdefault(key, candidate.id)
        return first


def _retried(candidate: Candidate, answer: Answer) -> Candidate:
    return replace(
        candidate,
        answer=answer.text,
        source=answer.source,
        problems=(),
        report=None,
        repairs=candidate.repairs + 1,
    )


def _with_report(candidate: Candidate, report: CheckReport) -> Candidate:
    return replace(candidate, report=report, problems=report.problems)
