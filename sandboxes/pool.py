"""The engine's sandbox: one single-threaded shard per core (or one on the GPU), each with its slice of the members.

Threads that spin on a busy core cost a factor of ninety; processes that sleep while they wait do not.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any

from sandboxes.base import (
    CheckReport,
    Failure,
    MemberResult,
    Progress,
    RewardProblem,
    TrainingRequest,
    TrainingResult,
)
from sandboxes.isolation.channel import ChannelClosed, ChannelMalformed, ChannelTimeout
from sandboxes.isolation.levels import LEVELS, Isolation, require
from sandboxes.isolation.process import Child, ZygoteProcess
from sandboxes.wire import MEMBERS, REPORTS, REQUEST, TASK, plain
from synth.errors import SynthError, TaskError
from synth.task import Task

_ANSWER_LIMIT = 1 << 28


def available_cores() -> int:
    """Cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool:
    """Implements `sandboxes.base.Sandbox` with local processes.

    Starting is lazy: the zygote begins to import torch at construction and is waited for at the first use.
    """

    def __init__(
        self,
        device: str = "auto",
        shards: int | None = None,
        limit: str = LEVELS[-1],
        minimum: str | None = None,
    ) -> None:
        """`limit`, `minimum`: the highest level of isolation to use, and the lowest to work at."""
        self.device, self.limit, self.minimum = device, limit, minimum
        self._wanted = shards
        self._shards: list[Child] = []
        self._zygote = ZygoteProcess(self.limit)

    def isolation(self) -> Isolation:
        """See `sandboxes.base.Sandbox.isolation`."""
        found = self._zygote.wait_ready()
        require(found, self.minimum)
        return found

    def check(self, task: Task, sources: list[str]) -> list[CheckReport]:
        """See `sandboxes.base.Sandbox.check`: the sources are dealt out over the shards."""
        shards = self._ready()[: len(sources)]
        payload = plain(TASK, task)
        parts = [sources[index :: len(shards)] for index in range(len(shards))]
        requests = [{"op": "check", "task": payload, "sources": part} for part in parts]
        answers = self._ask(shards, requests, None, 0)
        reports: list[CheckReport | None] = [None] * len(sources)
        for index, (part, answer) in enumerate(zip(parts, answers, strict=True)):
            lost = CheckReport(problems=(_lost(answer),))
            found = REPORTS.validate_python(answer["reports"]) if "reports" in answer else [lost] * len(part)
            reports[index :: len(shards)] = found
        return [report for report in reports if report is not None]

    def train(self, request: TrainingRequest, progress: Progress | None = None) -> TrainingResult:
        """See `sandboxes.base.Sandbox.train`."""
        start = time.monotonic()
        members = len(request.rewards) * len(request.seeds)
        shards = self._ready()[:members]
        payload, device = plain(REQUEST, request), self._device_name()
        plan = split_members(len(request.rewards), len(request.seeds), len(shards))
        requests = [{"op": "train", "request": payload, "counts": counts, "device": device} for counts in plan]
        answers = self._ask(shards, requests, progress, request.env_steps * members)
        found: dict[tuple[str, int], MemberResult] = {}
        for counts, answer in zip(plan, answers, strict=True):
            if "members" in answer:
                trained = MEMBERS.validate_python(answer["members"])
            else:
                trained = _lost_members(request, counts, _lost(answer))
            found.update({(m.reward_id, m.seed): m for m in trained})
        ordered = tuple(found[r.id, seed] for r in request.rewards for seed in request.seeds)
        return TrainingResult(ordered, sum(m.env_steps for m in ordered), time.monotonic() - start)

    def close(self) -> None:
        """See `sandboxes.base.Sandbox.close`."""
        for shard in self._shards:
            shard.channel.close()
        self._shards.clear()
        self._zygote.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> list[Child]:
        """All shards, those that ended since the last request replaced."""
        if self._zygote.ended():
            self.close()
            self._zygote = ZygoteProcess(self.limit)
        self.isolation()
        count = 1 if self._device_name() == "cuda" else self._wanted or available_cores()
        for shard in [s for s in self._shards if s.channel.hung_up()]:
            self._discard(shard)
        while len(self._shards) < count:
            self._shards.append(self._zygote.spawn("shard"))
        return self._shards

    def _discard(self, shard: Child) -> None:
        if shard in self._shards:  # not when `progress` closed the pool
            self._shards.remove(shard)
            self._zygote.kill(shard)

    def _device_name(self) -> str:
        if self.device == "auto":
            self.device = "cuda" if _cuda_available() else "cpu"
        return self.device

    def _ask(
        self, shards: list[Child], requests: list[dict[str, Any]], progress: Progress | None, total: int
    ) -> list[dict[str, Any]]:
        """One answer for each request, in order; the answer of a shard that died says so under `lost`.

        Whatever interrupts the waiting (Ctrl-C, an error in `progress`), no shard is left at work on a request whose
        answer would then be taken for that of the next.
        """
        answers: dict[int, dict[str, Any]] = {}
        try:
            for shard, request in zip(shards, requests, strict=True):
                try:
                    shard.channel.send(request)
                except (ChannelClosed, ChannelTimeout) as error:
                    answers[shard.pid] = self._obituary(shard, error)
            self._gather(shards, answers, progress, total)
        finally:
            for shard in shards:
                if "lost" in answers.get(shard.pid, {"lost": "interrupted"}):
                    self._discard(shard)
        for answer in answers.values():
            if answer.get("user"):
                raise TaskError(answer["error"])
            if "trace" in answer:
                raise SynthError(f"the trainer failed: {answer['error']}")
        return [answers[shard.pid] for shard in shards]

    def _gather(
        self, shards: list[Child], answers: dict[int, dict[str, Any]], progress: Progress | None, total: int
    ) -> None:
        """Fill in the missing answers, and tell `progress` about the sum of what the shards have done."""
        done = dict.fromkeys((shard.pid for shard in shards), 0)
        waiting = {shard.channel.fileno(): shard for shard in shards if shard.pid not in answers}
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], 1.0)
            for fd in ready:
                shard = waiting[fd]
                try:
                    message = shard.channel.receive(60.0, max_bytes=_ANSWER_LIMIT)
                except (ChannelClosed, ChannelTimeout, ChannelMalformed) as error:
                    message = self._obituary(shard, error)
                if "progress" in message:
                    done[shard.pid] = int(message["progress"])
                    if progress is not None:
                        progress(min(sum(done.values()), total), total)
                else:
                    answers[shard.pid] = message
                    del waiting[fd]

    def _obituary(self, shard: Child, error: Exception) -> dict[str, Any]:
        code = self._zygote.ending(shard).code
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return {"lost": f"the training process died ({how}; {error})"}


def _cuda_available() -> bool:
    """Asked without importing torch into the engine's process when no NVIDIA device exists."""
    if not os.path.exists("/dev/nvidiactl") and sys.platform == "linux":
        return False
    import torch

    return bool(torch.cuda.is_available())


def split_members(rewards: int, seeds: int, shards: int) -> list[list[tuple[int, int]]]:
    """Deal members out in order, evenly: for each shard, first and last seed index of each reward."""
    members = rewards * seeds
    plan = []
    for shard in range(shards):
        low, high = members * shard // shards, members * (shard + 1) // shards
        counts = []
        for reward in range(rewards):
            first = min(max(low - reward * seeds, 0), seeds)
            last = min(max(high - reward * seeds, 0), seeds)
            counts.append((first, last))
        plan.append(counts)
    return plan


def _lost(answer: dict[str, Any]) -> RewardProblem:
    return RewardProblem(Failure.CRASHED, str(answer.get("lost", "the training process gave no result")))


def _lost_members(
    request: TrainingRequest, counts: list[tuple[int, int]], problem: RewardProblem
) -> list[MemberResult]:
    return [
        MemberResult(reward.id, seed, None, (), 0, problem)
        for reward, (first, last) in zip(request.rewards, counts, strict=True)
        for seed in request.seeds[first:last]
    ]
