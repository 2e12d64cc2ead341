"""Scores the deterministic policies of a population with the task's trusted metric on fixed evaluation seeds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sandboxes.torch_sim.rng import env_seeds
from sandboxes.trainer.fields import FieldRecorder, arguments
from sandboxes.trainer.normalise import ObservationNormaliser
from sandboxes.trainer.policy import PopulationPolicy
from sandboxes.trainer.trusted import TrustedMetric, make_simulator
from synth.task import Task

_EVALUATION_SEED = 20_000  # the same starts for every member, apart from all training seeds
_EVALUATION_STREAM = 1


class Evaluator:
    """Runs whole episodes and asks the metric; each member sees the same starting states."""

    def __init__(self, task: Task, metric: TrustedMetric, members: int, device: torch.device) -> None:
        self.task, self.metric, self.device = task, metric, device
        self.members, self.episodes = members, task.training.evaluation_episodes
        self.seeds = env_seeds(_EVALUATION_SEED, self.episodes, _EVALUATION_STREAM).repeat(members)

    @torch.no_grad()
    def __call__(self, policy: PopulationPolicy, normaliser: ObservationNormaliser) -> tuple[Tensor, Tensor]:
        """Metric and mean episode length of every member, (P,) each."""
        simulator = make_simulator(
            self.task, self.seeds, self.device
        )  # a fresh one, so that every evaluation starts from the same episodes
        names = [n for n in arguments(self.metric.compute) if n != "valid"]
        recorder = FieldRecorder(simulator, names)
        recorder.start()
        recorder.begin_rollout()
        shape = (self.members, self.episodes)
        running = torch.ones(simulator.num_envs, dtype=torch.bool, device=simulator.device)
        valid = []
        for _ in range(simulator.episode_steps):
            observation = normaliser(simulator.observation().view(*shape, -1))
            action = policy.best_action(observation)
            terminated, truncated = simulator.step(action.reshape(simulator.num_envs, *action.shape[2:]))
            recorder.after_step(action.reshape(simulator.num_envs, *action.shape[2:]))
            valid.append(running)
            running = running & ~(terminated | truncated)
        fields = recorder.end_rollout()
        return score_episodes(self.metric.compute, fields, torch.stack(valid), shape)


def score_episodes(
    compute: Callable[..., Tensor], fields: dict[str, Tensor], valid: Tensor, shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Metric and episode length per member from recorded steps.

    Args:
        compute: the task's `compute_metric`.
        fields: (T, B, *shape); what was recorded after an episode's end is replaced by its last state.
        valid: (T, B) bool, true for the steps that belong to the episode.
        shape: (P, E) with P * E = B.
    """
    last = valid.sum(dim=0) - 1  # (B,)
    steps = torch.arange(valid.shape[0], device=valid.device).unsqueeze(-1)
    index = torch.minimum(steps, last)  # (T, B)
    held = {}
    for name, value in fields.items():
        wide = index.view(*index.shape, *([1] * (value.dim() - 2))).expand(value.shape)
        held[name] = value.gather(0, wide)
    if "valid" in arguments(compute):
        held["valid"] = valid
    metric = compute(**held).to(torch.float32)
    if metric.shape != (valid.shape[1],):
        raise ValueError(f"compute_metric returned shape {tuple(metric.shape)}, not ({valid.shape[1]},)")
    length = (last + 1).to(torch.float32)
    return metric.view(shape).mean(dim=1), length.view(shape).mean(dim=1)
