"""The training of one population, told from start to end: collect, reward, update, measure at checkpoints."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sandboxes.base import Checkpoint, Failure, MemberResult, RewardProblem
from sandboxes.torch_sim.rng import env_seeds
from sandboxes.trainer.evaluate import Evaluator
from sandboxes.trainer.normalise import ObservationNormaliser, RewardScaler
from sandboxes.trainer.policy import PopulationPolicy
from sandboxes.trainer.ppo import PPO
from sandboxes.trainer.rewards import Reward, RewardFailed, RewardValues, sum_warning
from sandboxes.trainer.rollout import Collector, Rollout
from sandboxes.trainer.statistics import MemberStatistics
from sandboxes.trainer.trusted import TrustedMetric, make_simulator
from synth.task import Task

_DIVERGED = RewardProblem(Failure.NON_FINITE, "the training diverged: the policy's weights became NaN or infinite")


@dataclass
class Group:
    """The members that train one reward: a run of neighbouring slices, one per seed."""

    reward_id: str
    seeds: tuple[int, ...]
    reward: Reward | None  # None once it failed
    problem: RewardProblem | None = None
    warnings: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[Reward | None]:
        """The reward while it lives. When it fails inside, the worker goes and the members earn zero from then on."""
        try:
            yield self.reward
        except RewardFailed as failed:
            if self.reward is not None:
                self.reward.close()
            self.reward, self.problem = None, failed.problem


@dataclass(frozen=True)
class Schedule:
    """How many iterations a training has, and after which ones it is measured."""

    iterations: int
    horizon: int
    checkpoints: tuple[int, ...]  # iteration counts, ascending; the last is `iterations`

    @staticmethod
    def of(env_steps: int, num_envs: int, horizon: int, checkpoints: int) -> Schedule:
        """At least `env_steps` steps per member."""
        iterations = max(1, math.ceil(env_steps / (num_envs * horizon)))
        points = {math.ceil(iterations * k / checkpoints) for k in range(1, checkpoints + 1)}
        return Schedule(iterations, horizon, tuple(sorted(points)))


class PopulationTrainer:
    """Trains every group's members together, as slices of the same tensors."""

    def __init__(
        self, task: Task, metric: TrustedMetric, groups: list[Group], schedule: Schedule, device: torch.device
    ) -> None:
        self.groups, self.schedule, self.settings = groups, schedule, task.training
        seeds = [seed for group in groups for seed in group.seeds]
        self.members, self.num_envs = len(seeds), task.training.num_envs
        starts = torch.cat([env_seeds(seed, self.num_envs) for seed in seeds])
        simulator = make_simulator(task, starts, device)
        self.policy = PopulationPolicy(
            simulator.observation_size,
            simulator.action_spec,
            self.settings.hidden,
            self.settings.initial_std,
            seeds,
            device,
        )
        self.normaliser = ObservationNormaliser(self.members, simulator.observation_size, device)
        parameters = {name for group in groups if group.reward is not None for name in group.reward.parameters}
        self.collector = Collector(simulator, self.policy, self.normaliser, seeds, parameters)
        self.scaler = RewardScaler(self.members, self.num_envs, self.settings.discount, device)
        self.ppo = PPO(self.policy, self.settings, device)
        self.evaluate = Evaluator(task, metric, self.members, device)
        self.statistics = [MemberStatistics() for _ in seeds]
        self.curves: list[list[Checkpoint]] = [[] for _ in seeds]
        self.diverged: set[int] = set()

    def run(self, progress: Callable[[int], None]) -> list[MemberResult]:
        """Train to the end of the schedule; `progress` hears the steps taken by all members together."""
        done = 0
        for iteration in range(1, self.schedule.iterations + 1):
            rollout = self.collector.collect(self.schedule.horizon)
            reward = self._rewards(rollout)
            if all(group.reward is None for group in self.groups):
                break
            self.ppo.update(rollout, self.scaler(reward, rollout.done), iteration / self.schedule.iterations)
            done += self.schedule.horizon * self.num_envs
            if iteration in self.schedule.checkpoints:
                self._checkpoint(done)
            progress(done * self.members)
        return self._results(done)

    def _rewards(self, rollout: Rollout) -> Tensor:
        """Every group's reward on its own slice of the rollout, (H, P, N); zeros for failed groups."""
        horizon = rollout.done.shape[0]
        reward = torch.zeros(rollout.done.shape, device=rollout.done.device)
        spans, start = [], 0
        for group in self.groups:
            spans.append((group, start, start + len(group.seeds)))
            start += len(group.seeds)
        for group, first, last in spans:
            with group.reporting() as alive:
                if alive is not None:
                    alive.submit(self._slice(rollout, alive, first, last))
        for group, first, last in spans:
            with group.reporting() as alive:
                if alive is not None:
                    values = alive.collect()
                    self._note(group, values, first, horizon)
                    reward[:, first:last] = values.reward.view(horizon, last - first, self.num_envs)
        return reward

    def _slice(self, rollout: Rollout, reward: Reward, first: int, last: int) -> dict[str, Tensor]:
        """The rows of members first..last as the reward's parameters, (H * S * N, *shape)."""
        span = slice(first * self.num_envs, last * self.num_envs)
        return {name: rollout.fields[name][:, span].flatten(0, 1) for name in reward.parameters}

    def _note(self, group: Group, values: RewardValues, first: int, horizon: int) -> None:
        """Statistics of each member, and the warning when components do not sum to the reward."""
        if not group.warnings and (warning := sum_warning(values)):
            group.warnings.append(warning)
        count = len(group.seeds)
        reward = values.reward.view(horizon, count, self.num_envs)
        components = values.components.view(-1, horizon, count, self.num_envs)
        for offset in range(count):
            member = self.statistics[first + offset]
            member.add(reward[:, offset].flatten(), values.names, components[:, :, offset].flatten(1))

    def _checkpoint(self, env_steps: int) -> None:
        """Measure the members whose reward and weights are sound; the others' curves end here."""
        metric, length = self.evaluate(self.policy, self.normaliser)
        sound = self.policy.stack.flat.isfinite().all(dim=1)
        for member, group in enumerate(self._groups_of_members()):
            if not bool(sound[member]):
                self.diverged.add(member)
            elif group.problem is None:
                mean_reward, components = self.statistics[member].take()
                point = Checkpoint(env_steps, float(metric[member]), mean_reward, float(length[member]), components)
                self.curves[member].append(point)

    def _groups_of_members(self) -> list[Group]:
        return [group for group in self.groups for _ in group.seeds]

    def _results(self, env_steps: int) -> list[MemberResult]:
        results = []
        seeds = [seed for group in self.groups for seed in group.seeds]
        for member, (group, seed) in enumerate(zip(self._groups_of_members(), seeds, strict=True)):
            problem = group.problem or (_DIVERGED if member in self.diverged else None)
            curve = tuple(self.curves[member])
            metric = curve[-1].metric if problem is None else None
            warnings = tuple(group.warnings)
            results.append(MemberResult(group.reward_id, seed, metric, curve, env_steps, problem, warnings))
        return results
