"""A process that trains its share of a population, single-threaded, and checks rewards on recorded states.

Requests and results are JSON of the dataclasses in `sandboxes.base`. The metric and the simulator live here; the
candidates' code lives in workers that the zygote forks on this process's behalf.
"""

from __future__ import annotations

import hashlib
import traceback
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sandboxes.base import CheckReport, Failure, MemberResult, RewardProblem, TrainingRequest
from sandboxes.isolation.channel import Channel, ChannelClosed
from sandboxes.isolation.process import ZygoteClient
from sandboxes.torch_sim.rng import env_seeds, uniform
from sandboxes.trainer.fields import FieldRecorder
from sandboxes.trainer.population import Group, PopulationTrainer, Schedule
from sandboxes.trainer.rewards import Reward, RewardFailed, RewardValues, TrustedReward, WorkerReward, sum_warning
from sandboxes.trainer.trusted import TrustedMetric, load_metric, make_simulator
from sandboxes.wire import MEMBERS, REPORTS, REQUEST, TASK, plain
from synth.errors import SynthError
from synth.reward import parse_reward
from synth.task import PREFIXES, Task

REQUEST_LIMIT = 1 << 28
_CHECK_SEED = 10_000
_CHECK_ENVS = 32
_CHECK_DEADLINE_S = 10.0
_SAME = 1e-3  # of the reward's largest magnitude; rounding differs between batch sizes by far less
_PROJECTIONS = 8


def main(channel: Channel, control: Channel) -> None:
    """Serve the engine until it hangs up."""
    zygote = ZygoteClient(control)
    while True:
        try:
            message = channel.receive(1e7, max_bytes=REQUEST_LIMIT)
        except ChannelClosed:
            return
        try:
            answer = _answer(message, channel, zygote)
        except SynthError as error:
            answer = {"error": str(error), "user": True}
        except Exception as error:  # noqa: BLE001  (reported to the engine, which decides)
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        try:
            channel.send(answer)
        except ChannelClosed:
            return


def _answer(message: dict[str, Any], channel: Channel, zygote: ZygoteClient) -> dict[str, Any]:
    if message["op"] == "check":
        task = TASK.validate_python(message["task"])
        reports = [check(task, source, zygote) for source in message["sources"]]
        return {"reports": plain(REPORTS, reports)}
    request = REQUEST.validate_python(message["request"])
    members = train(request, message["counts"], message["device"], channel, zygote)
    return {"members": plain(MEMBERS, members)}


def train(
    request: TrainingRequest, counts: list[list[int]], device: str, channel: Channel, zygote: ZygoteClient
) -> list[MemberResult]:
    """Train this shard's members; `counts` gives first and last seed index for each reward of the request."""
    metric = load_metric(request.task)
    settings = request.task.training
    schedule = Schedule.of(request.env_steps, settings.num_envs, settings.rollout_steps, request.checkpoints)
    groups: list[Group] = []
    try:
        for reward, (first, last) in zip(request.rewards, counts, strict=True):
            if last > first:
                group = Group(reward.id, request.seeds[first:last], None)
                groups.append(group)
                try:
                    group.reward = _open(request.task, reward.source, metric, zygote, request.reward_deadline_s)
                except RewardFailed as failed:
                    group.problem = failed.problem
        trainer = PopulationTrainer(request.task, metric, groups, schedule, torch.device(device))
        return trainer.run(lambda done: channel.send({"progress": done}))
    finally:
        for group in groups:
            if group.reward is not None:
                group.reward.close()


def _open(task: Task, source: str | None, metric: TrustedMetric, zygote: ZygoteClient, deadline_s: float) -> Reward:
    if source is None:
        return TrustedReward(metric.sparse)
    parsed = parse_reward(source, task)
    if parsed.code is None:
        raise RewardFailed(parsed.problems[0])
    return WorkerReward(zygote, source, parsed.code.parameters, deadline_s)


def check(task: Task, source: str, zygote: ZygoteClient) -> CheckReport:
    """The static gate, then real calls on states recorded from random behaviour: all, a third, and one."""
    parsed = parse_reward(source, task)
    if parsed.code is None:
        return CheckReport(problems=parsed.problems)
    states = recorded_states(_Hashable(task))
    reward = None
    try:
        reward = WorkerReward(zygote, source, parsed.code.parameters, _CHECK_DEADLINE_S)
        given = {name: states[name] for name in reward.parameters}
        values = _call(reward, given)
        _compare(reward, given, values, slice(1, None, 3))
        _compare(reward, given, values, _outlier(values.reward))
        warning = sum_warning(values)
        return CheckReport(
            problems=(),
            scriptable=reward.scriptable(),
            components=values.names,
            warnings=(warning,) if warning else (),
            fingerprint=_fingerprint(values.reward),
        )
    except RewardFailed as failed:
        return CheckReport(problems=(failed.problem,))
    finally:
        if reward is not None:
            reward.close()


def _call(reward: WorkerReward, fields: dict[str, Tensor]) -> RewardValues:
    reward.submit(fields)
    return reward.collect()


def _outlier(reward: Tensor) -> slice:
    """The state whose reward is furthest from the mean: there the batch's influence shows most."""
    index = int((reward - reward.mean()).abs().argmax())
    return slice(index, index + 1)


def _compare(reward: WorkerReward, given: dict[str, Tensor], values: RewardValues, rows: slice) -> None:
    """Hold the reward to its contract: what a state earns depends on no other state of the batch."""
    part = {name: value[rows] for name, value in given.items()}
    expected = values.reward[rows]
    try:
        found = _call(reward, part).reward
    except RewardFailed as failed:
        problem = failed.problem
        message = f"for N = {len(expected)}: {problem.message}"
        raise RewardFailed(RewardProblem(problem.kind, message, problem.line)) from None
    if float((found - expected).abs().max()) > _SAME * max(float(values.reward.abs().max()), 1e-6):
        message = (
            "the reward of a state changes with the other states of the batch; reduce over the last dimension only"
        )
        raise RewardFailed(RewardProblem(Failure.SHAPE, f"{message}, e.g. dim=-1, never over dim=0 or all dimensions"))


class _Hashable:
    """A task as a cache key: its folder and text decide what is simulated."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.key = repr((task.folder, task.simulator, sorted(task.simulator_options.items()), task.fields))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashable) and self.key == other.key


@lru_cache(maxsize=8)
def recorded_states(key: _Hashable) -> dict[str, Tensor]:
    """One episode of random behaviour in 32 environments: every possible reward parameter, (T * 32, *shape)."""
    task = key.task
    simulator = make_simulator(task, env_seeds(_CHECK_SEED, _CHECK_ENVS), torch.device("cpu"))
    names = [f.name for f in task.fields]
    recorder = FieldRecorder(simulator, ["time", *names, *(p + n for p in PREFIXES for n in names)])
    recorder.start()
    recorder.begin_rollout()
    spec = simulator.action_spec
    action_seeds = env_seeds(_CHECK_SEED, _CHECK_ENVS, stream=2)
    for step in range(simulator.episode_steps):
        draws = uniform(action_seeds, torch.full_like(action_seeds, step // 5), spec.size)
        action = torch.argmax(draws, dim=-1) if spec.discrete else draws * 2.0 - 1.0
        terminated, truncated = simulator.step(action)
        recorder.after_step(action)
        done = terminated | truncated
        if bool(done.any()):
            simulator.reset(done)
            recorder.after_reset(done)
    return {name: value.flatten(0, 1) for name, value in recorder.end_rollout().items()}


def _fingerprint(reward: Tensor) -> str:
    """Hash of a few random projections (M,) to four digits: equal for rewards that say the same.

    Rounding every value instead would tell `a + b + c` from `c + b + a`: among thousands of values one always lies
    where the last bit decides how it is rounded.
    """
    wide = reward.double()
    size = float(wide.norm()) or 1.0
    seeds = env_seeds(_CHECK_SEED, wide.shape[0], stream=3)
    directions = uniform(seeds, torch.zeros_like(seeds), _PROJECTIONS).double() - 0.5
    words = [f"{size:.4g}", *(f"{float(p):.4f}" for p in wide @ directions / size)]
    return hashlib.sha256(" ".join(words).replace("-0.0000", "0.0000").encode()).hexdigest()[:16]
