"""Actor and critic of the whole population: Gaussian for continuous actions, categorical for discrete ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.trainer.networks import ParameterStack, backward, forward, forward_kept, layer_shapes, orthogonal_

_LOG_2PI = math.log(2.0 * math.pi)


class PopulationPolicy:
    """P actors and P critics with the same architecture, in one flat parameter tensor."""

    def __init__(
        self,
        observation_size: int,
        action: ActionSpec,
        hidden: tuple[int, ...],
        initial_std: float,
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        self.action = action
        actor = layer_shapes([observation_size, *hidden, action.size])
        critic = layer_shapes([observation_size, *hidden, 1])
        self.stack = ParameterStack(len(seeds), [*actor, *critic, (1, action.size)], device)
        self.actor = self.stack.views[: len(actor)]
        self.critic = self.stack.views[len(actor) : -1]
        self.log_std = self.stack.views[-1]  # (P, 1, A); unused when discrete
        self._actor_grads = self.stack.grad_views[: len(actor)]
        self._critic_grads = self.stack.grad_views[len(actor) : -1]
        # Each member draws its weights from its own generator: its neighbours do not matter.
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        orthogonal_(self.actor, generators, output_gain=0.01)
        orthogonal_(self.critic, generators, output_gain=1.0)
        with torch.no_grad():
            self.log_std.fill_(math.log(initial_std))

    def act(self, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sample actions.

        Args:
            observation: (P, N, obs), normalised. noise: (P, N, A), standard normal (Gumbel when discrete).

        Returns:
            action (P, N, A) float, or (P, N) int64 when discrete; its log-probability (P, N); what the actor said
            (P, N, A): means or logits.
        """
        output = forward(self.actor, observation)
        if self.action.discrete:
            action = torch.argmax(output + noise, dim=-1)
            return action, categorical_log_prob(output, action), output
        action = output + noise * self.log_std.exp()
        return action, gaussian_log_prob(output, self.log_std, action), output

    def best_action(self, observation: Tensor) -> Tensor:
        """The deterministic policy: the mean, or the likeliest choice."""
        output = forward(self.actor, observation)
        return torch.argmax(output, dim=-1) if self.action.discrete else output

    def value(self, observation: Tensor) -> Tensor:
        """(P, M, obs) to (P, M)."""
        return forward(self.critic, observation).squeeze(-1)

    def differentiate(self, observation: Tensor, loss: Callable[[PolicyOutput], Tensor]) -> None:
        """Fill the stack's gradient with that of a loss.

        Args:
            observation: (P, M, obs), normalised.
            loss: from the networks' outputs to one number, the sum of all members' losses. Autograd sees this small
                part alone; the networks' own derivative is `networks.backward`.
        """
        with torch.no_grad():
            actor = forward_kept(self.actor, observation)
            critic = forward_kept(self.critic, observation)
        output = actor[-1].requires_grad_()
        value = critic[-1].requires_grad_()
        log_std = self.log_std.detach().requires_grad_()
        loss(PolicyOutput(self, output, value.squeeze(-1), log_std)).backward()  # type: ignore[no-untyped-call]
        assert output.grad is not None
        assert value.grad is not None
        with torch.no_grad():
            backward(self.actor, self._actor_grads, actor, output.grad)
            backward(self.critic, self._critic_grads, critic, value.grad)
            if log_std.grad is not None:  # it plays no part when actions are discrete
                self.stack.grad_views[-1].copy_(log_std.grad)


@dataclass(frozen=True)
class PolicyOutput:
    """What the networks say about a batch of observations, ready for a loss."""

    policy: PopulationPolicy
    output: Tensor  # (P, M, A): means or logits
    value: Tensor  # (P, M)
    log_std: Tensor  # (P, 1, A)

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability (P, M) of actions, and the entropy: (P, M) when discrete, else (P, 1)."""
        if self.policy.action.discrete:
            log_p = torch.log_softmax(self.output, dim=-1)
            chosen = log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1)
            return chosen, -(log_p.exp() * log_p).sum(-1)
        entropy = (self.log_std + 0.5 * (1.0 + _LOG_2PI)).sum(-1)
        return gaussian_log_prob(self.output, self.log_std, action), entropy


def gaussian_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """Log-density (P, M) of actions (P, M, A) under independent normals."""
    scaled = (action - mean) * torch.exp(-log_std)
    return (-0.5 * scaled.square() - log_std - 0.5 * _LOG_2PI).sum(-1)


def categorical_log_prob(logits: Tensor, action: Tensor) -> Tensor:
    """Log-probability (P, M) of choices (P, M) int64."""
    return torch.log_softmax(logits, dim=-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)
