"""Give a task in words, get a `reward.py` that trains a policy to do it.

    import synth

    result = synth.synthesize("pendulum_swingup", model="local")
    print(result.metric, result.reward_path)

Importing this package loads neither torch nor a language model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.task import Task, load_task
from synth.version import VERSION as __version__

if TYPE_CHECKING:
    from synth.engine import RunResult
    from synth.reward import RewardCode
    from synth.search import Listener

__all__ = ["RewardCode", "Task", "__version__", "load_task", "synthesize"]


def synthesize(
    task: str | Path | Task, model: str = "auto", *, listener: Listener | None = None, **options: Any
) -> RunResult:
    """Search a reward for a task: what `synth run` does.

    Args:
        task: a bundled task's name, a task folder, or a loaded task.
        model: as in `synth run --model`.
        listener: hears how the run goes (`synth.search.Listener`).
        options: the other fields of `synth.engine.RunSettings`: generations, samples, seeds, env_steps, seed, ...

    Raises:
        synth.errors.SynthError: with one line that says what to do.
    """
    from synth.engine import RunSettings, run_search

    loaded = task if isinstance(task, Task) else load_task(task)
    return run_search(RunSettings(task=loaded, model=model, **options), listener)


def __getattr__(name: str) -> Any:
    """`RewardCode`, loaded when it is asked for."""
    if name == "RewardCode":
        from synth.reward import RewardCode

        return RewardCode
    raise AttributeError(f"module 'synth' has no attribute '{name}'")
