"""Tasks: a text, a simulator, its state fields, a hidden metric and training defaults, kept in a folder.

A folder `tasks/<name>/` holds `task.yaml`, `metric.py` (trusted) and `expert_reward.py` (the human baseline, written
to the same contract as generated rewards). Nothing here imports torch: the command line stays quick.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from synth.errors import TaskError

PREFIXES = ("prev_", "initial_")
RESERVED = frozenset({"time", "action", "valid"})


@dataclass(frozen=True)
class StateField:
    """One named quantity of the simulator's state that a reward may read.

    A field reaches the reward as a tensor of shape `(N, *shape)`, float32 or bool.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    meaning: str
    dtype: Literal["float32", "bool"] = "float32"
    low: float | None = None
    high: float | None = None
    frame: str | None = None

    @property
    def size(self) -> int:
        """Number of values per environment."""
        total = 1
        for length in self.shape:
            total *= length
        return total


@dataclass(frozen=True)
class TrainingDefaults:
    """How long and with what settings one reward is trained on this task (per population member)."""

    env_steps: int = 200_000
    num_envs: int = 64
    rollout_steps: int = 32
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    target_kl: float = 0.016
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.0
    value_coefficient: float = 0.5
    max_grad_norm: float = 1.0
    initial_std: float = 1.0
    hidden: tuple[int, ...] = (64, 64)
    evaluation_episodes: int = 16


@dataclass(frozen=True)
class Task:
    """What is to be learnt, where, and how success is measured."""

    name: str
    folder: Path
    description: str
    simulator: str
    fields: tuple[StateField, ...]
    threshold: float
    simulator_options: dict[str, Any] = field(default_factory=dict)
    training: TrainingDefaults = field(default_factory=TrainingDefaults)

    @property
    def metric_path(self) -> Path:
        """Trusted `metric.py`: `compute_metric` and `sparse_reward`."""
        return self.folder / "metric.py"

    @property
    def expert_path(self) -> Path:
        """The human baseline's reward."""
        return self.folder / "expert_reward.py"

    def field_names(self) -> tuple[str, ...]:
        """Names a reward may use without prefix, `action` included."""
        return tuple(f.name for f in self.fields)

    def field_named(self, name: str) -> StateField:
        """The field called `name`; KeyError if the task has none."""
        for item in self.fields:
            if item.name == name:
                return item
        raise KeyError(name)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a reward function, resolved against a task: `prev_x` reads field `x` one step earlier."""

    name: str
    source: Literal["current", "prev", "initial", "time"]
    field: StateField


TIME_FIELD = StateField("time", (), "s", "seconds since the episode's reset")


def resolve_parameter(task: Task, name: str) -> Parameter:
    """Resolve a reward parameter's name to a state field.

    Raises:
        KeyError: the task has no such field; the message suggests near names.
    """
    known = {f.name: f for f in task.fields}
    if name in known:
        return Parameter(name, "current", known[name])
    if name == "time":
        return Parameter(name, "time", TIME_FIELD)
    for prefix, source in (("prev_", "prev"), ("initial_", "initial")):
        base = name.removeprefix(prefix)
        if base != name and base in known:
            return Parameter(name, source, known[base])  # type: ignore[arg-type]
    names = [*known, "time", *(p + n for p in PREFIXES for n in known)]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; the task has {', '.join(known)}"
    raise KeyError(f"unknown field '{name}'{hint}")


def tasks_folder() -> Path:
    """The bundled tasks: `tasks/` of a checkout, or the copy that travels inside the wheel."""
    return _bundled("tasks")


def prompts_folder() -> Path:
    """The bundled prompt templates: `prompts/` of a checkout, or the copy inside the wheel."""
    return _bundled("prompts")


def _bundled(name: str) -> Path:
    package = Path(__file__).resolve().parent
    packed = package / "_data" / name
    return packed if packed.is_dir() else package.parent / name


def discover_tasks() -> list[str]:
    """Names of the bundled tasks, sorted."""
    return sorted(p.parent.name for p in tasks_folder().glob("*/task.yaml"))


def load_task(name_or_folder: str | Path, description: str | None = None) -> Task:
    """Load a bundled task by name, or any task folder by path.

    Args:
        name_or_folder: a bundled name, or a folder that holds `task.yaml`.
        description: replaces the task's own text when given.

    Raises:
        TaskError: no such task (near names are suggested), or a malformed folder (file, key and reason are named).
    """
    from synth.task_file import read_task  # pydantic and yaml load only when a task is read

    folder = Path(name_or_folder)
    if folder.is_dir():
        if not (folder / "task.yaml").is_file():
            raise TaskError(f"{folder} has no task.yaml; a task is a folder with task.yaml and metric.py")
    else:
        bundled = tasks_folder() / str(name_or_folder)
        if not (bundled / "task.yaml").is_file() or "/" in str(name_or_folder):
            raise TaskError(_unknown_task(str(name_or_folder)))
        folder = bundled
    return read_task(folder, description)


def _unknown_task(name: str) -> str:
    names = discover_tasks()
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`synth tasks` lists them"
    return f"unknown task '{name}': neither a bundled task nor a folder; {hint}"
