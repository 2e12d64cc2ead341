"""One reward trained and scored by itself: what `synth eval` and `synth check` do."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.base import CheckReport, MemberResult, Progress, RewardSource, TrainingRequest
from synth.errors import NoRewardError, RewardError
from synth.evidence import Evidence, gather_evidence
from synth.result import Score, score_json
from synth.reward import parse_reward
from synth.task import Task

HUMAN, SPARSE = "human", "sparse"


@dataclass(frozen=True)
class Evaluation:
    """A reward's score over seeds, and how its training went."""

    task: str
    reward: str
    score: Score
    evidence: Evidence
    members: tuple[MemberResult, ...]
    env_steps: int  # of all trainings together
    wall_s: float

    def as_json(self) -> dict[str, Any]:
        """What `synth eval --json` prints."""
        score = score_json(self.score)
        return {
            "task": self.task,
            "reward": self.reward,
            "metric": {"mean": score["metric"], "ci95": score["ci95"], "per_seed": score["per_seed"]},
            "env_steps": self.env_steps,
            "wall_s": round(self.wall_s, 2),
        }


def read_reward(name: str, task: Task) -> str | None:
    """Source of a reward: a file, `human` (the task's expert), or None for `sparse` (the task's own, trusted).

    Raises:
        RewardError: no such file, or the task has no expert.
    """
    if name == SPARSE:
        return None
    path = task.expert_path if name == HUMAN else Path(name)
    if name == HUMAN and not path.is_file():
        raise RewardError(f"the task {task.name} has no expert_reward.py")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        near = difflib.get_close_matches(name, [HUMAN, SPARSE], n=1)
        hint = f"; did you mean {near[0]}?" if near else "; give a file, or one of: human, sparse"
        raise RewardError(f"there is no file {name}{hint}") from error
    except UnicodeDecodeError as error:
        raise RewardError(f"{name} is not a text file in UTF-8") from error
    except OSError as error:
        raise RewardError(f"{name} cannot be read: {error.strerror}") from error


def check_reward(source: str, task: Task, device: str = "cpu", min_isolation: str | None = None) -> CheckReport:
    """The static gate, and where it passes one call on recorded states in a worker process.

    Raises:
        SynthError: rewards cannot be confined as well as `min_isolation` demands.
    """
    from sandboxes.pool import Pool

    parsed = parse_reward(source, task)
    if parsed.code is None:
        return CheckReport(problems=parsed.problems)
    with Pool(device, shards=1, minimum=min_isolation) as pool:
        return pool.check(task, [source])[0]


def evaluate_reward(
    name: str,
    task: Task,
    seeds: int = 5,
    env_steps: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    min_isolation: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Train a reward with several seeds and score the final policies.

    Raises:
        RewardError: the file cannot be read.
        NoRewardError: the reward is invalid, or failed in training; names the problem.
        SynthError: rewards cannot be confined as well as `min_isolation` demands.
    """
    from sandboxes.pool import Pool

    source = read_reward(name, task)
    if source is not None:
        problems = parse_reward(source, task).problems
        if problems:
            raise NoRewardError(f"{name} is no valid reward for {task.name}: {describe(problems[0])}")
    steps = env_steps or task.training.env_steps
    with Pool(device, minimum=min_isolation) as pool:
        if source is not None:
            warning = pool.isolation().warning
            if warning:
                warn(warning)
            report = pool.check(task, [source])[0]
            if not report.ok:
                raise NoRewardError(f"{name} is no valid reward for {task.name}: {describe(report.problems[0])}")
        request = TrainingRequest(task, (RewardSource(name, source),), tuple(range(seeds)), steps)
        result = pool.train(request, progress)
    score = Score.of(result, name)
    if score is None:
        problem = next(m.problem for m in result.members if m.problem is not None)
        raise NoRewardError(f"{name} failed in training: {problem.message}")
    evidence = gather_evidence(result.members)
    return Evaluation(task.name, name, score, evidence, result.members, result.env_steps, result.wall_s)


def describe(problem: Any) -> str:
    """A problem as `line 3: message`."""
    return f"line {problem.line}: {problem.message}" if problem.line else str(problem.message)
