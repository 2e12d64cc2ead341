"""Running statistics of rewards and components between two checkpoints, for one population member."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sandboxes.base import ComponentStats


@dataclass
class MemberStatistics:
    """Sums over all rows seen since `take` was last called."""

    rows: int = 0
    reward_sum: float = 0.0
    names: tuple[str, ...] = ()
    sums: Tensor = field(default_factory=lambda: torch.zeros(3, 0, dtype=torch.float64))  # x, x^2, |x|
    low: Tensor = field(default_factory=lambda: torch.zeros(0))
    high: Tensor = field(default_factory=lambda: torch.zeros(0))

    def add(self, reward: Tensor, names: tuple[str, ...], components: Tensor) -> None:
        """Take in one rollout: reward (M,), components (C, M)."""
        if names != self.names or self.rows == 0:
            self._restart(names)
        self.rows += reward.shape[0]
        self.reward_sum += float(reward.sum(dtype=torch.float64))
        if names:
            wide = components.double()  # squares of large rewards would overflow single precision
            self.sums += torch.stack([wide.sum(dim=1), wide.square().sum(dim=1), wide.abs().sum(dim=1)]).cpu()
            low, high = torch.aminmax(components, dim=1)
            self.low = torch.minimum(self.low, low.cpu())
            self.high = torch.maximum(self.high, high.cpu())

    def take(self) -> tuple[float, dict[str, ComponentStats]]:
        """Mean reward per step and the components' statistics; starts afresh."""
        rows = max(self.rows, 1)
        mean = self.sums[0] / rows
        std = (self.sums[1] / rows - mean.square()).clamp(min=0.0).sqrt()
        share = self.sums[2] / self.sums[2].sum().clamp(min=1e-12)
        stats = {
            name: ComponentStats(
                float(mean[i]), float(std[i]), float(self.low[i]), float(self.high[i]), float(share[i])
            )
            for i, name in enumerate(self.names)
        }
        reward = self.reward_sum / rows
        self._restart(())
        return reward, stats

    def _restart(self, names: tuple[str, ...]) -> None:
        self.names, self.rows, self.reward_sum = names, 0, 0.0
        self.sums = torch.zeros(3, len(names), dtype=torch.float64)
        self.low = torch.full((len(names),), float("inf"))
        self.high = torch.full((len(names),), float("-inf"))
