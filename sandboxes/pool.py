"""The engine's sandbox: one single-threaded shard per core (or one on the GPU), each with its slice of the members.

Threads that spin on a busy core cost a factor of ninety; processes that sleep while they wait do not.
"""

from __future__ import annotations

import json
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
from sandboxes.isolation.process import Child, ZygoteProcess
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

    def __init__(self, device: str = "auto", shards: int | None = None) -> None:
        self.device = device
        self._wanted = shards
        self._shards: list[Child] = []
        self._zygote = ZygoteProcess()

    def check(self, task: Task, sources: list[str]) -> list[CheckReport]:
        """See `sandboxes.base.Sandbox.check`: the sources are dealt out over the shards."""
        from sandboxes.trainer.shard import REPORTS, TASK

        shards = self._ready()
        payload = json.loads(TASK.dump_json(task))
        busy = []
        for index, shard in enumerate(shards):
            part = sources[index :: len(shards)]
            if part:
                shard.channel.send({"op": "check", "task": payload, "sources": part})
                busy.append((index, shard, len(part)))
        reports: list[CheckReport | None] = [None] * len(sources)
        answers = self._gather([shard for _, shard, _ in busy], None, 0)
        for (index, _, count), answer in zip(busy, answers, strict=True):
            lost = CheckReport(problems=(_lost(answer),)) if "reports" not in answer else None
            found = [lost] * count if lost else REPORTS.validate_python(answer["reports"])
            reports[index :: len(shards)] = found
        return [r for r in reports if r is not None]

    def train(self, request: TrainingRequest, progress: Progress | None = None) -> TrainingResult:
        """See `sandboxes.base.Sandbox.train`."""
        from sandboxes.trainer.shard import MEMBERS, REQUEST

        start = time.monotonic()
        shards = self._ready()
        payload = json.loads(REQUEST.dump_json(request))
        plan = split_members(len(request.rewards), len(request.seeds), len(shards))
        busy = [(shard, counts) for shard, counts in zip(shards, plan, strict=True) if any(a < b for a, b in counts)]
        for shard, counts in busy:
            shard.channel.send({"op": "train", "request": payload, "counts": counts, "device": self._device_name()})
        total = request.env_steps * len(request.rewards) * len(request.seeds)
        answers = self._gather([shard for shard, _ in busy], progress, total)
        found: dict[tuple[str, int], MemberResult] = {}
        for (_, counts), answer in zip(busy, answers, strict=True):
            if "members" in answer:
                members = MEMBERS.validate_python(answer["members"])
            else:
                members = _lost_members(request, counts, _lost(answer))
            found.update({(m.reward_id, m.seed): m for m in members})
        ordered = tuple(found[r.id, seed] for r in request.rewards for seed in request.seeds)
        return TrainingResult(ordered, sum(m.env_steps for m in ordered), time.monotonic() - start)

    def close(self) -> None:
        """See `sandboxes.base.Sandbox.close`."""
        self._shards.clear()
        self._zygote.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> list[Child]:
        if not self._shards:
            count = 1 if self._device_name() == "cuda" else self._wanted or available_cores()
            self._shards = [self._zygote.spawn("shard") for _ in range(count)]
        return self._shards

    def _device_name(self) -> str:
        if self.device == "auto":
            self.device = "cuda" if _cuda_available() else "cpu"
        return self.device

    def _gather(self, shards: list[Child], progress: Progress | None, total: int) -> list[dict[str, Any]]:
        """Every shard's answer, progress reported on the way; a shard that died answers with its error."""
        answers: dict[int, dict[str, Any]] = {}
        done = dict.fromkeys((s.pid for s in shards), 0)
        waiting = {s.channel.fileno(): s for s in shards}
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], 1.0)
            for fd in ready:
                shard = waiting[fd]
                message = self._receive(shard)
                if "progress" in message:
                    done[shard.pid] = int(message["progress"])
                    if progress is not None:
                        progress(min(sum(done.values()), total), total)
                    continue
                answers[shard.pid] = message
                del waiting[fd]
        for message in answers.values():
            if message.get("user"):
                raise TaskError(message["error"])
            if "trace" in message:
                raise SynthError(f"the trainer failed: {message['error']}")
        return [answers[s.pid] for s in shards]

    def _receive(self, shard: Child) -> dict[str, Any]:
        try:
            return shard.channel.receive(60.0, max_bytes=_ANSWER_LIMIT)
        except (ChannelClosed, ChannelTimeout, ChannelMalformed) as error:
            code = self._zygote.exit_code(shard)
            self._zygote.kill(shard)
            self._shards[self._shards.index(shard)] = self._zygote.spawn("shard")
            return {"lost": f"the training process died (exit code {code}; {error})"}


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
