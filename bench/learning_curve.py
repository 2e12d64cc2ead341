"""Draws the final comparison of a run: winner, expert's and sparse reward, mean and range over the seeds.

python -m bench.learning_curve runs/<run> docs/learning_curve.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

LABELS = {"expert": "the expert's reward", "sparse": "the sparse reward"}


def curves(run: Path) -> dict[str, list[list[tuple[int, float]]]]:
    """For each reward of the final training, one curve of (environment steps, metric) per seed."""
    final: dict[str, Any] = json.loads((run / "final.json").read_text(encoding="utf-8"))
    found: dict[str, list[list[tuple[int, float]]]] = {}
    for member in final["training"]["members"]:
        points = [(0, 0.0), *((p["env_steps"], p["metric"]) for p in member["checkpoints"])]
        found.setdefault(member["reward_id"], []).append(points)
    return found


def draw(run: Path, out: Path) -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), dpi=120)
    for name, seeds in curves(run).items():
        steps = [point[0] for point in seeds[0]]
        columns = list(zip(*([point[1] for point in curve] for curve in seeds), strict=True))
        mean = [sum(column) / len(column) for column in columns]
        (line,) = axes.plot(steps, mean, label=LABELS.get(name, f"found by the search ({name})"))
        axes.fill_between(
            steps, [min(c) for c in columns], [max(c) for c in columns], color=line.get_color(), alpha=0.15, linewidth=0
        )
    axes.axhline(settings["task"]["threshold"], color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="environment steps", ylabel="metric", ylim=(0, 1), title=settings["task"]["name"])
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    """Read the arguments and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    draw(options.run, options.out)


if __name__ == "__main__":
    main()
