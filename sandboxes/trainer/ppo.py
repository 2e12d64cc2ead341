"""Proximal policy optimisation over a population: every quantity of a member is computed from its own slice alone.

Schulman et al. 2017; generalised advantage estimation, Schulman et al. 2016; the KL-adaptive learning rate follows
rsl_rl's rule, here with one rate per member.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sandboxes.trainer.policy import PolicyOutput, PopulationPolicy
from sandboxes.trainer.rollout import Rollout
from synth.task import TrainingDefaults

_RATE_BOUNDS = (1e-5, 3e-3)
# The allowed policy change shrinks to this share by the end: without it late updates undo what was learnt.
_FINAL_KL_SHARE = 0.1


def generalised_advantage(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, done: Tensor, discount: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Advantages and value targets, both (H, P, N).

    Args:
        reward, value: (H, P, N). next_value: value of the state after each step, *before* any reset.
        terminated: the task ended the episode: nothing follows, no bootstrap.
        done: terminated or truncated: the sum over later steps stops here.
    """
    delta = reward + discount * torch.where(terminated, 0.0, next_value) - value
    keep = torch.where(done, 0.0, discount * lam)
    advantage = torch.zeros_like(reward)
    following = torch.zeros_like(reward[0])
    for step in range(reward.shape[0] - 1, -1, -1):
        following = delta[step] + keep[step] * following
        advantage[step] = following
    return advantage, advantage + value


class PopulationAdam:
    """Adam (Kingma and Ba 2015) on the flat parameters (P, D), with a learning rate and a gradient clip per member."""

    def __init__(self, policy: PopulationPolicy, learning_rate: float, max_grad_norm: float) -> None:
        self.flat, self.grad = policy.stack.flat, policy.stack.grad
        self.first = torch.zeros_like(self.flat)
        self.second = torch.zeros_like(self.flat)
        self.rate = torch.full((self.flat.shape[0], 1), learning_rate, device=self.flat.device)
        self.max_grad_norm = max_grad_norm
        self.steps = 0

    @torch.no_grad()
    def step(self) -> None:
        """Clip each member's gradient by its own norm and update."""
        self.steps += 1
        norm = self.grad.square().sum(dim=1, keepdim=True).sqrt_()
        self.grad.mul_((self.max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
        self.first.lerp_(self.grad, 0.1)
        self.second.mul_(0.999).addcmul_(self.grad, self.grad, value=0.001)
        correction_1, correction_2 = 1.0 - 0.9**self.steps, 1.0 - 0.999**self.steps
        denominator = (self.second / correction_2).sqrt_().add_(1e-8)
        self.flat.addcdiv_(self.first * (-self.rate / correction_1), denominator)
        self.grad.zero_()

    @torch.no_grad()
    def adapt(self, kl: Tensor, target: float) -> None:
        """Lower the rate of members whose policy moved too far, (P,) KL; raise it for those that barely moved."""
        kl = kl.unsqueeze(-1)
        factor = torch.where(kl > 2.0 * target, 1.0 / 1.5, torch.where(kl < 0.5 * target, 1.5, 1.0))
        self.rate = (self.rate * factor).clamp_(*_RATE_BOUNDS)


class PPO:
    """The update: several epochs of minibatches on one rollout."""

    def __init__(self, policy: PopulationPolicy, settings: TrainingDefaults, device: torch.device) -> None:
        self.policy, self.settings = policy, settings
        self.optimiser = PopulationAdam(policy, settings.learning_rate, settings.max_grad_norm)
        # One order of samples for all members: it depends on no member, and one index serves the whole stack.
        self.shuffle = torch.Generator().manual_seed(0)
        self.device = device
        self._target_kl = settings.target_kl
        self._kl = torch.zeros(policy.stack.flat.shape[0], device=device)

    def update(self, rollout: Rollout, scaled_reward: Tensor, progress: float) -> None:
        """Improve every member on its own part of `rollout`.

        Args:
            scaled_reward: (H, P, N).
            progress: how much of the training is done, in [0, 1].
        """
        self._target_kl = self.settings.target_kl * (1.0 + (_FINAL_KL_SHARE - 1.0) * progress)
        batch = self._batch(rollout, scaled_reward)
        samples = batch["observation"].shape[1]
        size = max(1, samples // self.settings.minibatches)
        for _ in range(self.settings.epochs):
            order = torch.randperm(samples, generator=self.shuffle).to(self.device)
            shuffled = {name: value.index_select(1, order) for name, value in batch.items()}
            for start in range(0, samples - size + 1, size):
                self._minibatch({name: value[:, start : start + size] for name, value in shuffled.items()})

    def _batch(self, rollout: Rollout, scaled_reward: Tensor) -> dict[str, Tensor]:
        horizon, members, num_envs = scaled_reward.shape
        with torch.no_grad():
            observation = rollout.flat(rollout.observation)
            value = self.policy.value(observation)
            next_value = self.policy.value(rollout.flat(rollout.next_observation))
        unflat = (members, horizon, num_envs)
        advantage, target = generalised_advantage(
            scaled_reward,
            value.view(unflat).transpose(0, 1),
            next_value.view(unflat).transpose(0, 1),
            rollout.terminated,
            rollout.done,
            self.settings.discount,
            self.settings.gae_lambda,
        )
        flat_advantage = rollout.flat(advantage)
        std, mean = torch.std_mean(flat_advantage, dim=1, keepdim=True)
        return {
            "observation": observation,
            "action": rollout.flat(rollout.action),
            "log_prob": rollout.flat(rollout.log_prob),
            "advantage": (flat_advantage - mean) / (std + 1e-8),
            "target": rollout.flat(target),
        }

    def _minibatch(self, batch: dict[str, Tensor]) -> None:
        self.policy.differentiate(batch["observation"], lambda out: self._loss(out, batch))
        self.optimiser.adapt(self._kl, self._target_kl)
        self.optimiser.step()

    def _loss(self, out: PolicyOutput, batch: dict[str, Tensor]) -> Tensor:
        """Clipped surrogate, value error and entropy, summed over members so that gradients stay apart."""
        clip = self.settings.clip
        log_prob, entropy = out.log_prob_and_entropy(batch["action"])
        log_ratio = log_prob - batch["log_prob"]
        ratio = log_ratio.exp()
        advantage = batch["advantage"]
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
        value_error = (out.value - batch["target"]).square()
        per_sample = 0.5 * self.settings.value_coefficient * value_error - surrogate
        with torch.no_grad():  # Schulman's low-variance, never negative estimate of the KL divergence
            self._kl = (ratio - 1.0 - log_ratio).mean(dim=1)
        return per_sample.mean(dim=1).sum() - self.settings.entropy * entropy.mean(dim=1).sum()
