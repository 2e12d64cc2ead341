"""`synth check`: is this a valid reward for this task?"""

from __future__ import annotations

from typing import Any

import click

from sandboxes.isolation.levels import LEVELS
from synth.cli import print_json
from synth.errors import EXIT_DONE, EXIT_NO_REWARD


@click.command(short_help="Say whether a reward is valid for a task.")
@click.argument("reward", metavar="REWARD.py")
@click.argument("task")
@click.option(
    "--min-isolation",
    type=click.Choice(LEVELS),
    help="Refuse to work where rewards are confined less well than this; see `synth doctor`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.pass_context
def command(ctx: click.Context, reward: str, task: str, min_isolation: str | None, as_json: bool) -> None:
    """Say whether REWARD.py is a valid reward for TASK, without training.

    First the static gate (imports, functions, field names), then one call on recorded states in a process of its own:
    shapes, dtypes, finiteness, and whether the components sum to the reward. Exit code 0 if valid, 3 if not.
    """
    from synth.evaluation import check_reward, describe, read_reward
    from synth.task import load_task

    loaded = load_task(task)
    source = read_reward(reward, loaded)
    if source is None:
        raise click.UsageError("the sparse reward belongs to the task and needs no check")
    report = check_reward(source, loaded, min_isolation=min_isolation)
    result: dict[str, Any] = {
        "ok": report.ok,
        "scriptable": report.scriptable,
        "components": list(report.components),
        "errors": [{"kind": p.kind.value, "line": p.line, "message": p.message} for p in report.problems],
        "warnings": list(report.warnings),
    }
    if as_json:
        print_json(result)
    elif report.ok:
        click.echo(f"valid reward for {loaded.name}: components {', '.join(report.components) or '(none)'}")
        click.echo("TorchScript compiles it" if report.scriptable else "TorchScript does not compile it")
    else:
        for problem in report.problems:
            click.echo(f"{problem.kind.value}: {describe(problem)}")
    if not as_json:
        for warning in report.warnings:
            click.echo(f"warning: {warning}")
    ctx.exit(EXIT_DONE if report.ok else EXIT_NO_REWARD)
