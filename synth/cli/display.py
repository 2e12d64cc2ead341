"""What people see: progress on standard error while a command works, a readable page on standard output at its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from synth.candidate import Candidate, commonest

if TYPE_CHECKING:
    from synth.engine import RunResult
    from synth.evaluation import Evaluation
    from synth.task import Task

_BARS = "▁▂▃▄▅▆▇█"
_SCORES = (("this reward", "best"), ("expert's reward", "expert"), ("sparse reward", "sparse"))


class Display:
    """Implements `synth.search.Listener`: a live line on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._live = self.console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Display:
        if self._live:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def stage(self, text: str) -> None:
        """See `Listener.stage`."""
        if not self._live:
            self.console.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False, soft_wrap=True)
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(text, total=None)

    def progress(self, done: int, total: int) -> None:
        """See `Listener.progress`."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def generation(self, index: int, candidates: Sequence[Candidate], best: Candidate | None) -> None:
        """See `Listener.generation`."""
        metrics = sorted((c.metric or 0.0 for c in candidates if c.trained), reverse=True)
        trained = f"{len(metrics)} of {len(candidates)} trained"
        if metrics and best is not None:
            text = f"generation {index}: {trained}, best metric {metrics[0]:.3f}"
            text += f", best so far {best.metric:.3f} ({best.id})"
        else:
            text = f"generation {index}: {trained}"
        self.console.print(text, highlight=False, soft_wrap=True)
        if not metrics:
            for problem, count in commonest([p for c in candidates for p in c.problems]):
                self.console.print(f"  {count} times: {problem.message}", highlight=False, soft_wrap=True)

    def warning(self, text: str) -> None:
        """See `Listener.warning`."""
        self.console.print(f"warning: {text}", highlight=False, soft_wrap=True)


def output() -> Console:
    """Standard output."""
    return Console(file=sys.stdout, highlight=False)


def sparkline(values: Sequence[float], top: float = 1.0) -> str:
    """A curve in one line of text, from 0 to `top`."""
    cells = [min(len(_BARS) - 1, max(0, int(v / top * len(_BARS)))) for v in values]
    return "".join(_BARS[c] for c in cells)


def show_source(console: Console, source: str) -> None:
    """Python source, coloured on a terminal and plain elsewhere, never cut."""
    if console.is_terminal:
        console.print(Syntax(source, "python", background_color="default", word_wrap=True))
    else:
        console.print(Text(source.rstrip()), soft_wrap=True)


def score_table(result: dict[str, Any], threshold: float) -> Table:
    """The winner beside the expert's and the sparse reward."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "metric", "95 % interval", "each seed"):
        table.add_column(title, justify="left")
    for label, key in _SCORES:
        score = result.get(key) or {}
        if score.get("metric") is None:
            table.add_row(label, "none", "", "")
            continue
        interval = score.get("ci95")
        between = f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""
        seeds = " ".join(f"{v:.2f}" for v in score.get("per_seed", []))
        table.add_row(label, f"{score['metric']:.3f}", between, seeds)
    table.caption = f"The task counts as solved from {threshold:.2f}."
    table.caption_justify = "left"
    return table


def cost_words(result: dict[str, Any]) -> str:
    """What a run cost, in one line."""
    tokens, wall = result["tokens"], result["wall_s"]
    usd = "price unknown" if result["usd"] is None else f"{result['usd']:.4f} USD"
    return (
        f"{result['env_steps']:,} environment steps, {tokens['prompt']:,} + {tokens['completion']:,} tokens "
        f"(prompt + answers; {usd}), {wall['total']:.0f} s ({wall['llm']:.0f} s model, {wall['train']:.0f} s training)"
    )


def show_result(result: RunResult, task: Task) -> None:
    """The end of `synth run`."""
    console, data = output(), result.json
    console.print()
    show_source(console, result.source)
    console.print()
    console.print(score_table(data, task.threshold))
    if data["human_normalised"] is not None:
        console.print(f"human-normalised score {data['human_normalised']:.2f} (1 is the expert, 0 the sparse reward)")
    counts = data["candidates"]
    console.print(
        f"search: {counts['proposed']} rewards proposed, {counts['valid']} valid, {counts['trained']} trained; "
        f"model {data['model']}, strategy {data['strategy']}",
        soft_wrap=True,
    )
    console.print(f"cost:   {cost_words(data)}", soft_wrap=True)
    console.print(f"reward: {result.reward_path}", soft_wrap=True)
    console.print("\nnext:", style="bold")
    console.print(f"  synth show {result.folder}        the search, step by step", soft_wrap=True)
    console.print(f"  synth eval {result.reward_path} {task.name} --seeds 10", soft_wrap=True)
    if data["best"]["metric"] < task.threshold:
        console.print(
            "  The task is not solved yet. Try --generations 10, another --seed, or a stronger --model.", soft_wrap=True
        )


def show_evaluation(result: Evaluation, task: Task) -> None:
    """The end of `synth eval`."""
    console, score = output(), result.score
    interval = f", 95 % interval {score.ci95[0]:.3f} to {score.ci95[1]:.3f}" if score.ci95 else ""
    seeds = " ".join(f"{v:.2f}" for v in score.per_seed)
    console.print(f"metric {score.metric:.3f}{interval} (each seed: {seeds})", soft_wrap=True)
    reached = "reached" if score.metric >= task.threshold else "not reached"
    console.print(f"the task's threshold of {task.threshold:.2f} is {reached}")
    console.print(f"learning curve {sparkline(result.evidence.metrics)} over {result.evidence.env_steps[-1]:,} steps")
    for part in result.evidence.components:
        console.print(f"  {part.name}: mean {part.means[-1]:.3g}, {part.share:.0%} of the reward", soft_wrap=True)
    for warning in dict.fromkeys(w for m in result.members for w in m.warnings):
        console.print(f"warning: {warning}", soft_wrap=True)
    console.print(f"{result.env_steps:,} environment steps in {result.wall_s:.1f} s")
