"""`synth tasks`: what there is to learn, and whether its simulator is installed."""

from __future__ import annotations

import importlib.util
from importlib.metadata import entry_points
from typing import Any

import click

from synth.cli import print_json
from synth.task import Task, discover_tasks, load_task


@click.command(short_help="List the tasks.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list on standard output.")
def command(as_json: bool) -> None:
    """List the bundled tasks: what each asks for, and whether its simulator is installed.

    Your own task is a folder with task.yaml, metric.py and (if you like) expert_reward.py; give its path wherever a
    task's name is asked for. docs/tasks.md shows how.
    """
    tasks = [load_task(name) for name in discover_tasks()]
    if as_json:
        print_json([row(task) for task in tasks])
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("task", "simulator", "threshold", "what is asked for"):
        table.add_column(title, no_wrap=title != "what is asked for")
    for task in tasks:
        missing = missing_parts(task)
        first_sentence = task.description.split(". ")[0].rstrip(".") + "."
        words = first_sentence if not missing else f"not ready: {missing}"
        table.add_row(task.name, task.simulator, f"{task.threshold:.2f}", words)
    Console().print(table)


def row(task: Task) -> dict[str, Any]:
    """One task as JSON."""
    missing = missing_parts(task)
    return {
        "name": task.name,
        "simulator": task.simulator,
        "ready": missing is None,
        "missing": missing,
        "description": task.description,
        "fields": [{"name": f.name, "shape": list(f.shape), "unit": f.unit, "meaning": f.meaning} for f in task.fields],
        "threshold": task.threshold,
    }


def missing_parts(task: Task) -> str | None:
    """What must be installed before the task can be used; None when nothing. Imports no simulator."""
    found = next(iter(entry_points(group="synth.simulators", name=task.simulator)), None)
    if found is None:
        return f"no simulator named {task.simulator} is installed"
    try:
        spec = importlib.util.find_spec(found.module)
    except ImportError as error:
        return f"the simulator {task.simulator} needs {error.name}"
    return None if spec is not None else f"the module {found.module} is missing"
