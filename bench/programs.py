"""The programs that `bench.throughput` times: a population, a single candidate, Stable-Baselines3's PPO."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from synth.task import load_task

TASK = "pendulum_swingup"


def candidate(index: int) -> str:
    """The expert's reward with another weight for each candidate: same cost, other policies."""
    source = load_task(TASK).expert_path.read_text(encoding="utf-8")
    return source.replace(
        "-0.1 * torch.square(angular_velocity)", f"-{0.05 + 0.01 * index:.2f} * torch.square(angular_velocity)"
    )


def population(count: int, env_steps: int) -> None:
    """All candidates in one program, as the engine trains them."""
    train_in_pool(range(count), env_steps, shards=None)


def one(index: int, env_steps: int) -> None:
    """The same program for one candidate, on one core."""
    train_in_pool([index], env_steps, shards=1)


def train_in_pool(candidates: Sequence[int], env_steps: int, shards: int | None) -> None:
    """Train candidates in the engine's pool."""
    from sandboxes.base import RewardSource, TrainingRequest
    from sandboxes.pool import Pool

    rewards = tuple(RewardSource(f"c{i}", candidate(i)) for i in candidates)
    with Pool("cpu", shards) as pool:
        result = pool.train(TrainingRequest(load_task(TASK), rewards, (0,), env_steps))
    if any(m.metric is None for m in result.members):
        raise SystemExit("a candidate was not trained")


def direct(index: int, env_steps: int) -> None:
    """One candidate with the same trainer in a process of its own, its reward called directly: no worker, no copies."""
    import torch

    from sandboxes.trainer.fields import arguments
    from sandboxes.trainer.population import Group, PopulationTrainer, Schedule
    from sandboxes.trainer.rewards import RewardValues
    from sandboxes.trainer.trusted import load_metric

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    namespace: dict[str, Callable[..., tuple[torch.Tensor, dict[str, torch.Tensor]]]] = {}
    exec(compile(candidate(index), "candidate", "exec"), namespace)
    function = namespace["compute_reward"]

    class Direct:
        parameters = arguments(function)
        fields: dict[str, torch.Tensor]

        def submit(self, fields: dict[str, torch.Tensor]) -> None:
            self.fields = fields

        def collect(self) -> RewardValues:
            reward, components = function(**self.fields)
            return RewardValues(reward, tuple(components), torch.stack(list(components.values())))

        def close(self) -> None:
            return

    task = load_task(TASK)
    settings = task.training
    schedule = Schedule.of(env_steps, settings.num_envs, settings.rollout_steps, 10)
    groups = [Group("candidate", (0,), Direct())]
    PopulationTrainer(task, load_metric(task), groups, schedule, torch.device("cpu")).run(lambda done: None)


def sb3(index: int, env_steps: int) -> None:
    """Stable-Baselines3's PPO at its best on one core: 64 environments, batches of 512, the same network and epochs."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    settings = load_task(TASK).training
    environments = DummyVecEnv([lambda: gymnasium.make("Pendulum-v1") for _ in range(64)])
    model = PPO(
        "MlpPolicy",
        environments,
        n_steps=settings.rollout_steps,
        batch_size=512,
        n_epochs=settings.epochs,
        gamma=settings.discount,
        learning_rate=settings.learning_rate,
        policy_kwargs={"net_arch": list(settings.hidden)},
        seed=index,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))  # by default it leaves a folder in /tmp for every run
    model.learn(env_steps)


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["population", "one", "direct", "sb3"])
    parser.add_argument("--index", type=int, default=0, help="the candidate; for population, how many there are")
    parser.add_argument("--env-steps", type=int, required=True)
    options = parser.parse_args()
    parts = {"population": population, "one": one, "direct": direct, "sb3": sb3}
    parts[options.part](options.index, options.env_steps)


if __name__ == "__main__":
    main()
