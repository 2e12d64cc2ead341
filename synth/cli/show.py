"""`synth show`: a run as a page of text."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from synth.cli import print_json
from synth.errors import StoreError


@click.command(short_help="Show a run: the reward, its metric, the search.")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def command(run: str, as_json: bool) -> None:
    """Show RUN, a run's folder or its name under runs/: the winning reward, its metric, and how the search went."""
    from synth.store import read_run

    folder = find_run(run)
    data = read_run(folder)
    if as_json:
        data["candidates"] = [c.as_json() for c in data["candidates"]]
        print_json(data)
        return
    _show(folder, data)


def find_run(name: str) -> Path:
    """The folder of a run.

    Raises:
        StoreError: there is none; near names are suggested.
    """
    for folder in (Path(name), Path("runs") / name):
        if (folder / "run.json").is_file():
            return folder
    if Path(name).is_dir():
        raise StoreError(f"{name} is not a run: it has no run.json")
    known = sorted(p.parent.name for p in Path("runs").glob("*/run.json"))
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[-3:]
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `synth run` makes one"
    raise StoreError(f"there is no run '{name}'{hint}")


def _show(folder: Path, data: dict[str, Any]) -> None:
    from synth.cli.display import cost_words, output, score_table, show_source, sparkline
    from synth.evidence import gather_evidence

    console = output()
    result, settings = data["result"], data["settings"]
    status = result["status"] if result else "not finished"
    console.print(f"run {data['run']}: task {settings['task']['name']}, {status}", style="bold", soft_wrap=True)
    console.print(settings["task"]["description"], soft_wrap=True)
    reward = folder / "reward.py"
    if reward.is_file():
        console.print()
        show_source(console, reward.read_text(encoding="utf-8"))
    if result:
        console.print()
        console.print(score_table(result, settings["task"]["threshold"]))
        console.print(f"cost: {cost_words(result)}", soft_wrap=True)
    generation = None
    for candidate in data["candidates"]:
        if candidate.generation != generation:
            generation = candidate.generation
            console.print(f"\ngeneration {generation}", style="bold")
        origin = f"from {candidate.parent}" if candidate.parent else "new"
        if candidate.trained:
            evidence = gather_evidence(candidate.members)
            parts = ", ".join(f"{c.name} {c.share:.0%}" for c in evidence.components)
            line = f"  {candidate.id}  {evidence.metric:.3f}  {sparkline(evidence.metrics)}  {origin}: {parts}"
        else:
            line = f"  {candidate.id}  not trained, {origin}: {'; '.join(p.message for p in candidate.problems)}"
        console.print(line, soft_wrap=True)
    for event in data["events"]:
        if event["event"] == "reflected":
            verdicts = ", ".join(f"{k}: {v}" for k, v in event["verdicts"].items())
            console.print(
                f"\nreflection on {event['candidate']}: {event['reflection'] or '(no words)'}", soft_wrap=True
            )
            console.print(f"  {verdicts}", soft_wrap=True)
    console.print(f"\nevery prompt and answer: {folder / 'transcript.md'}", soft_wrap=True)
