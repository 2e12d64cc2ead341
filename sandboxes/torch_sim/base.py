"""What every torch simulator shares: episodes, clocks, resets by mask. A simulator adds its dynamics and fields."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.rng import uniform


class TorchSimulator:
    """B environments whose state is one tensor (B, state_size).

    A subclass sets the class attributes and writes `initial_state`, `advance`, `fields`, `observation`, and
    `terminated` where the task can end early.
    """

    action_spec: ClassVar[ActionSpec]
    observation_size: ClassVar[int]
    reset_draws: ClassVar[int]  # uniform numbers one reset consumes
    dt: float = 0.05
    episode_steps: int = 200

    def __init__(self, seeds: Tensor, device: Any = "cpu", episode_steps: int | None = None) -> None:
        """See `sandboxes.base.SimulatorFactory`: `seeds` (B,) int64."""
        self.seeds = seeds.to(device)
        self.device = torch.device(device)
        self.num_envs = int(seeds.shape[0])
        if episode_steps is not None:
            self.episode_steps = episode_steps
        self.episode = torch.full_like(self.seeds, -1)
        self.steps = torch.zeros_like(self.seeds)
        self.state = self.initial_state(uniform(self.seeds, self.episode, self.reset_draws))
        self.reset()

    def initial_state(self, draws: Tensor) -> Tensor:
        """State at reset (B, state_size) from uniform `draws` (B, reset_draws) in [0, 1)."""
        raise NotImplementedError

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """State one control step later; `action` (B, size) in [-1, 1], or (B,) int64 when discrete."""
        raise NotImplementedError

    def terminated(self, state: Tensor) -> Tensor:
        """(B,) bool: the episode ends here. Never, unless a simulator says so."""
        return torch.zeros(state.shape[0], dtype=torch.bool, device=state.device)

    def fields(self) -> dict[str, Tensor]:
        """See `sandboxes.base.Simulator.fields`."""
        raise NotImplementedError

    def observation(self) -> Tensor:
        """See `sandboxes.base.Simulator.observation`."""
        raise NotImplementedError

    def reset(self, mask: Tensor | None = None) -> None:
        """See `sandboxes.base.Simulator.reset`."""
        if mask is None:
            mask = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self.episode = self.episode + mask
        fresh = self.initial_state(uniform(self.seeds, self.episode, self.reset_draws))
        self.state = torch.where(mask.unsqueeze(-1), fresh, self.state)
        self.steps = torch.where(mask, 0, self.steps)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """See `sandboxes.base.Simulator.step`."""
        if not self.action_spec.discrete:
            action = action.clamp(-1.0, 1.0)
        self.state = self.advance(self.state, action)
        self.steps = self.steps + 1
        terminated = self.terminated(self.state)
        truncated = (self.steps >= self.episode_steps) & ~terminated
        return terminated, truncated


def wrap_angle(angle: Tensor) -> Tensor:
    """Any angle in rad to [-pi, pi), same shape."""
    return torch.remainder(angle + torch.pi, 2.0 * torch.pi) - torch.pi
