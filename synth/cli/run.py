"""`synth run`: search a reward for a task."""

from __future__ import annotations

from pathlib import Path

import click

from sandboxes.isolation.levels import LEVELS
from synth.cli import print_json


@click.command(short_help="Search a reward for a task.")
@click.argument("task")
@click.option("--description", help="Replaces the task's text.")
@click.option(
    "--model",
    default="auto",
    show_default=True,
    help="Who writes the rewards: local (embedded, no key), gguf:FILE, openai/NAME, any litellm name, scripted:PATH, "
    "manual, random. auto: a key in the environment, else local.",
)
@click.option("--evaluator-model", help="Who reflects on the results [the same model].")
@click.option("--api-base", metavar="URL", help="An OpenAI-compatible server (vLLM, Ollama, llama.cpp).")
@click.option("--strategy", default="eureka", show_default=True, help="How to search.")
@click.option("--generations", default=5, show_default=True, type=click.IntRange(1), help="Rounds of the search.")
@click.option("--samples", default=16, show_default=True, type=click.IntRange(1), help="Rewards per round.")
@click.option(
    "--seeds", default=5, show_default=True, type=click.IntRange(1, 1000), help="Final trainings of the winner."
)
@click.option("--env-steps", type=click.IntRange(1), help="Environment steps of one training [the task's default].")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Decides everything random.")
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
@click.option(
    "--min-isolation",
    type=click.Choice(LEVELS),
    help="Refuse to work where rewards are confined less well than this; see `synth doctor`.",
)
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder [runs/<task>-<time>].")
@click.option("--prompts", type=click.Path(path_type=Path), help="Your own prompt templates, before the bundled ones.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def command(
    task: str,
    description: str | None,
    model: str,
    evaluator_model: str | None,
    api_base: str | None,
    strategy: str,
    generations: int,
    samples: int,
    seeds: int,
    env_steps: int | None,
    seed: int,
    device: str,
    min_isolation: str | None,
    out: Path | None,
    prompts: Path | None,
    as_json: bool,
) -> None:
    """Search a reward for TASK: a bundled task's name (see `synth tasks`) or your own task folder.

    Every round, the model writes rewards; all of them are trained at once in short reinforcement learning runs; the
    best is studied and developed further. The winner is trained again on new seeds, beside the expert's reward and
    the sparse one. Its reward.py and every measurement are kept in the run's folder.
    """
    from synth.cli.display import Display, show_result
    from synth.engine import RunSettings, run_search
    from synth.task import load_task

    settings = RunSettings(
        task=load_task(task, description),
        model=model,
        evaluator_model=evaluator_model,
        api_base=api_base,
        strategy=strategy,
        generations=generations,
        samples=samples,
        seeds=seeds,
        env_steps=env_steps,
        seed=seed,
        device=device,
        min_isolation=min_isolation,
        out=out,
        prompts=prompts,
    )
    with Display() as display:
        result = run_search(settings, display)
    if as_json:
        print_json(result.json)
    else:
        show_result(result, settings.task)
