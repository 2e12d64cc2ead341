"""Running normalisation of observations and returns, one set of statistics per population member."""

from __future__ import annotations

import torch
from torch import Tensor


class RunningMoments:
    """Mean and variance over all values seen so far (Chan et al.'s pairwise update), per member and feature."""

    def __init__(self, members: int, features: int, device: torch.device) -> None:
        self.mean = torch.zeros(members, 1, features, device=device)
        self.var = torch.ones(members, 1, features, device=device)
        self.count = 1e-4

    def update(self, values: Tensor) -> None:
        """Take in values (P, M, features)."""
        count = values.shape[1]
        var, mean = torch.var_mean(values, dim=1, keepdim=True, correction=0)
        total = self.count + count
        delta = mean - self.mean
        scatter = self.var * self.count + var * count + delta.square() * (self.count * count / total)
        self.mean = self.mean + delta * (count / total)
        self.var = scatter / total
        self.count = total


class ObservationNormaliser(RunningMoments):
    """Observations to zero mean and unit variance, clipped to [-10, 10]."""

    def __call__(self, observation: Tensor) -> Tensor:
        """(P, M, features) to the same shape."""
        return ((observation - self.mean) * torch.rsqrt(self.var + 1e-6)).clamp_(-10.0, 10.0)


class RewardScaler:
    """Divides rewards by the running standard deviation of the discounted return, so that no reward needs a scale.

    This is the return-based scaling of Engstrom et al. 2020 (Implementation Matters in Deep Policy Gradients).
    """

    def __init__(self, members: int, num_envs: int, discount: float, device: torch.device) -> None:
        self.discount = discount
        self.returns = torch.zeros(members, num_envs, device=device)
        self.moments = RunningMoments(members, 1, device)

    def __call__(self, reward: Tensor, done: Tensor) -> Tensor:
        """(H, P, N) rewards and episode ends (bool) to scaled rewards (H, P, N), clipped to [-10, 10]."""
        history = []
        for step in range(reward.shape[0]):
            self.returns = self.returns * self.discount + reward[step]
            history.append(self.returns)
            self.returns = torch.where(done[step], 0.0, self.returns)
        horizon, members, num_envs = reward.shape
        stacked = torch.stack(history).transpose(0, 1).reshape(members, horizon * num_envs, 1)
        self.moments.update(stacked)
        scale = torch.rsqrt(self.moments.var.view(1, members, 1) + 1e-8)
        return (reward * scale).clamp_(-10.0, 10.0)
