"""Loads the trusted parts of a task: its metric, its sparse reward and its simulator."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from torch import Tensor

from sandboxes.base import Simulator
from synth.errors import TaskError
from synth.task import Task

GROUP = "synth.simulators"


@dataclass(frozen=True)
class TrustedMetric:
    """`metric.py` of a task: `compute_metric` on whole episodes, `sparse_reward` per step."""

    compute: Callable[..., Tensor]
    sparse: Callable[..., Tensor]


def load_metric(task: Task) -> TrustedMetric:
    """Import a task's metric; TaskError when it lacks a function."""
    module = _load_module(task.metric_path)
    functions = {}
    for name in ("compute_metric", "sparse_reward"):
        function = getattr(module, name, None)
        if not callable(function):
            raise TaskError(f"{task.metric_path}: it must define {name}(...)")
        functions[name] = function
    return TrustedMetric(functions["compute_metric"], functions["sparse_reward"])


def _load_module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"synth_metric_{path.parent.name}", path)
    if spec is None or spec.loader is None:
        raise TaskError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TaskError(f"{path}: {type(error).__name__}: {error}") from error
    return module


def simulator_class(name: str) -> Any:
    """The simulator registered under `name`; TaskError when none is, or when its package is missing."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join(sorted(e.name for e in entry_points(group=GROUP)))
        raise TaskError(f"no simulator is called '{name}'; installed ones: {known}")
    try:
        return next(iter(found)).load()
    except ImportError as error:
        raise TaskError(f"simulator '{name}' cannot be loaded: {error}") from error


def make_simulator(task: Task, seeds: Tensor, device: Any) -> Simulator:
    """Build the task's simulator with B = len(seeds) environments."""
    try:
        simulator: Simulator = simulator_class(task.simulator)(seeds, device, **task.simulator_options)
    except TypeError as error:
        raise TaskError(f"{task.folder / 'task.yaml'}: key 'simulator_options': {error}") from error
    offered = simulator.fields()
    for item in task.fields:
        if item.name == "action":
            if item.shape != (simulator.action_spec.size,):
                size = simulator.action_spec.size
                raise TaskError(f"{task.folder / 'task.yaml'}: key 'fields.action': the simulator's shape is [{size}]")
        elif item.name not in offered:
            raise TaskError(
                f"{task.folder / 'task.yaml'}: key 'fields.{item.name}': the simulator has no such field; "
                f"it has {', '.join(offered)}"
            )
        elif tuple(offered[item.name].shape[1:]) != item.shape:
            shape = list(offered[item.name].shape[1:])
            raise TaskError(f"{task.folder / 'task.yaml'}: key 'fields.{item.name}': the simulator's shape is {shape}")
    return simulator
