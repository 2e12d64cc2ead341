"""`synth eval`: train with one reward and print the metric."""

from __future__ import annotations

import click

from sandboxes.isolation.levels import LEVELS
from synth.cli import print_json


@click.command(name="eval", short_help="Train with one reward and print the metric.")
@click.argument("reward", metavar="REWARD.py|human|sparse")
@click.argument("task")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(1, 1000), help="Trainings, one per seed.")
@click.option("--env-steps", type=click.IntRange(1), help="Environment steps of one training [the task's default].")
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
@click.option(
    "--min-isolation",
    type=click.Choice(LEVELS),
    help="Refuse to work where rewards are confined less well than this; see `synth doctor`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def command(
    reward: str,
    task: str,
    seeds: int,
    env_steps: int | None,
    device: str,
    min_isolation: str | None,
    as_json: bool,
) -> None:
    """Train policies on TASK with one reward, one per seed, and print the metric of the final policies.

    The reward is a file, `human` (the task's hand-written expert) or `sparse` (the task's bare success signal).
    """
    from synth.cli.display import Display, show_evaluation
    from synth.evaluation import evaluate_reward
    from synth.task import load_task

    loaded = load_task(task)
    with Display() as display:
        display.stage(f"training {seeds} {'policy' if seeds == 1 else 'policies'} with {reward} on {loaded.name}")
        result = evaluate_reward(
            reward, loaded, seeds, env_steps, device, display.progress, min_isolation, display.warning
        )
    if as_json:
        print_json(result.as_json())
    else:
        show_evaluation(result, loaded)
