"""Collects experience: H steps of all P·N environments, with the state fields that the rewards will read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from sandboxes.base import Simulator
from sandboxes.trainer.fields import FieldRecorder
from sandboxes.trainer.normalise import ObservationNormaliser
from sandboxes.trainer.policy import PopulationPolicy


@dataclass
class Rollout:
    """H steps of the population: time first, then members, then each member's environments."""

    observation: Tensor  # (H, P, N, obs), normalised as the policy saw it
    next_observation: Tensor  # (H, P, N, obs), after the step and before any reset
    action: Tensor  # (H, P, N, A), or (H, P, N) int64 when discrete
    log_prob: Tensor  # (H, P, N)
    terminated: Tensor  # (H, P, N) bool
    done: Tensor  # (H, P, N) bool: terminated or truncated
    fields: dict[str, Tensor]  # reward parameter name to (H, P*N, *shape)

    @staticmethod
    def flat(value: Tensor) -> Tensor:
        """(H, P, N, ...) to (P, H*N, ...)."""
        horizon, members, num_envs = value.shape[:3]
        return value.transpose(0, 1).reshape(members, horizon * num_envs, *value.shape[3:])


class Collector:
    """Steps a simulator under the population's policy and keeps the episodes' clocks."""

    def __init__(
        self,
        simulator: Simulator,
        policy: PopulationPolicy,
        normaliser: ObservationNormaliser,
        seeds: Iterable[int],
        parameters: Iterable[str],
    ) -> None:
        self.simulator, self.policy, self.normaliser = simulator, policy, normaliser
        self.members = len(list(seeds))
        self.num_envs = simulator.num_envs // self.members
        self.noise = [torch.Generator().manual_seed(seed + 1) for seed in seeds]
        self.recorder = FieldRecorder(simulator, parameters)
        self.recorder.start()
        # First episodes end at staggered times, or all environments would pass through the same phase together.
        fractions = (torch.arange(self.num_envs) + 1.0) / self.num_envs
        limits = (fractions * simulator.episode_steps).ceil().long().repeat(self.members)
        self.first_limit = limits.to(simulator.device)
        self.observation = self._observe()
        self.normaliser.update(self.observation)

    def _observe(self) -> Tensor:
        return self.simulator.observation().view(self.members, self.num_envs, -1)

    def _draw_noise(self, horizon: int) -> Tensor:
        """(H, P, N, A) noise, each member's from its own generator."""
        spec = self.policy.action
        shape = (horizon, self.num_envs, spec.size)
        noise = torch.stack([torch.randn(shape, generator=g) for g in self.noise], dim=1)
        if spec.discrete:  # Gumbel noise by inverse transform of the normal's distribution function
            uniform = (0.5 * torch.erfc(-noise / 2.0**0.5)).clamp(1e-7, 1.0 - 1e-7)
            noise = -torch.log(-torch.log(uniform))
        return noise.to(self.simulator.device)

    @torch.no_grad()
    def collect(self, horizon: int) -> Rollout:
        """Run `horizon` steps; the normaliser learns from them afterwards."""
        noise = self._draw_noise(horizon)
        shape = (self.members, self.num_envs)
        steps: dict[str, list[Tensor]] = {
            name: [] for name in ("observation", "raw", "next", "action", "log_prob", "terminated", "done")
        }
        self.recorder.begin_rollout()
        for index in range(horizon):
            normalised = self.normaliser(self.observation)
            action, log_prob, _ = self.policy.act(normalised, noise[index])
            flat_action = action.reshape(self.simulator.num_envs, *action.shape[2:])
            terminated, truncated = self.simulator.step(flat_action)
            self.recorder.after_step(flat_action)
            after = self._observe()
            limit_reached = self.recorder.steps >= self.first_limit
            done = terminated | truncated | limit_reached
            steps["observation"].append(normalised)
            steps["raw"].append(self.observation)
            steps["next"].append(after)
            steps["action"].append(action)
            steps["log_prob"].append(log_prob)
            steps["terminated"].append(terminated.view(shape))
            steps["done"].append(done.view(shape))
            self.first_limit = torch.where(done, self.simulator.episode_steps, self.first_limit)
            self.observation = self._reset(done, after)
        stacked = {name: torch.stack(values) for name, values in steps.items()}
        rollout = Rollout(
            observation=stacked["observation"],
            next_observation=self.normaliser(stacked["next"].view(-1, *shape, stacked["next"].shape[-1])),
            action=stacked["action"],
            log_prob=stacked["log_prob"],
            terminated=stacked["terminated"],
            done=stacked["done"],
            fields=self.recorder.end_rollout(),
        )
        self.normaliser.update(Rollout.flat(stacked["raw"]))
        return rollout

    def _reset(self, done: Tensor, after: Tensor) -> Tensor:
        """Start new episodes where `done` (B,); the observation from which the next step acts."""
        # On a CPU asking is cheap and resets are rare; on CUDA asking would stall the pipeline.
        if done.device.type == "cpu" and not bool(done.any()):
            return after
        self.simulator.reset(done)
        self.recorder.after_reset(done)
        return self._observe()
