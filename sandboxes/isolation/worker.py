"""The process that runs one reward. It holds the candidate's code, copies of state, and nothing else.

Messages: `load` compiles the source; `layout` maps the shared buffer (its descriptor travels along); `compute` runs
the reward on the buffer's inputs and writes the outputs; `script` tries TorchScript. Every answer is a small JSON
object; what it claims is checked again by the process that receives it.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sandboxes.base import Failure
from sandboxes.isolation.buffer import MAX_COMPONENTS, Layout, SharedBuffer
from sandboxes.isolation.channel import Channel, ChannelClosed

FILENAME = "<reward.py>"
FOREVER_S = 1e7


class RewardFault(Exception):
    """What a reward did wrong, as kind, message and line."""

    def __init__(self, kind: Failure, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.line = kind, line


class Worker:
    """State of one worker between messages."""

    def __init__(self) -> None:
        self.function: Callable[..., Any] | None = None
        self.buffer: SharedBuffer | None = None
        self.rows = 0

    def handle(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Answer one message."""
        try:
            if message["op"] == "load":
                self.function = load(message["source"])
                return {"ok": True}
            if message["op"] == "layout":
                if self.buffer is not None:
                    self.buffer.close()
                layout = Layout.from_message(message)
                self.buffer, self.rows = SharedBuffer(layout, fds[0]), layout.rows
                return {"ok": True}
            if message["op"] == "script":
                return {"ok": True, "scriptable": self.scriptable()}
            return {"ok": True, "components": self.compute()}
        except RewardFault as fault:
            return {"ok": False, "kind": fault.kind.value, "message": str(fault)[:2000], "line": fault.line}

    def compute(self) -> list[str]:
        """Run the reward on the buffer's inputs; names of the components, whose values are in the buffer."""
        if self.function is None or self.buffer is None:
            raise RewardFault(Failure.RAISED, "nothing to compute yet")
        try:
            with torch.no_grad():
                result = self.function(**self.buffer.inputs)
        except Exception as error:  # noqa: BLE001  (a candidate may raise anything; it becomes its measurement)
            raise RewardFault(Failure.RAISED, describe(error), line_of(error)) from None
        reward, components = unpack(result, self.rows)
        self.buffer.outputs[0] = reward
        for row, value in enumerate(components.values(), start=1):
            self.buffer.outputs[row] = value
        return list(components)

    def scriptable(self) -> bool:
        """Whether TorchScript compiles the reward, as Isaac Gym tasks require."""
        try:
            torch.jit.script(self.function)
        except Exception:  # noqa: BLE001  (TorchScript raises many types for code outside its subset)
            return False
        return True


def load(source: str) -> Callable[..., Any]:
    """Compile a reward's source and return its `compute_reward`."""
    # TorchScript and tracebacks look the source up by file name.
    linecache.cache[FILENAME] = (len(source), None, source.splitlines(keepends=True), FILENAME)
    namespace: dict[str, Any] = {"__name__": "reward"}
    try:
        exec(compile(source, FILENAME, "exec"), namespace)
    except Exception as error:  # noqa: BLE001  (module-level code may raise anything)
        raise RewardFault(Failure.RAISED, describe(error), line_of(error)) from None
    function = namespace.get("compute_reward")
    if not callable(function):
        raise RewardFault(Failure.SYNTAX, "there is no function named compute_reward")
    return function  # type: ignore[no-any-return]


def unpack(result: Any, rows: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Hold a returned value to the contract: reward (rows,) and components, each (rows,)."""
    if result is None:
        raise RewardFault(Failure.RETURN, "compute_reward returned nothing; end it with `return reward, components`")
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise RewardFault(
            Failure.RETURN, f"compute_reward must return (reward, components dict), not {kind_of(result)}"
        )
    reward, components = result
    if len(components) > MAX_COMPONENTS:
        raise RewardFault(Failure.RETURN, f"{len(components)} components; at most {MAX_COMPONENTS} are allowed")
    checked = {}
    for name, value in components.items():
        if not isinstance(name, str) or len(name) > 80:
            raise RewardFault(Failure.RETURN, "component names must be strings of at most 80 characters")
        checked[name] = hold(f"component '{name}'", value, rows)
    return hold("the reward", reward, rows), checked


def hold(what: str, value: Any, rows: int) -> Tensor:
    """One output as float32 (rows,), or the exact complaint."""
    if not isinstance(value, Tensor):
        raise RewardFault(
            Failure.DTYPE,
            f"{what} is {kind_of(value)}, not a tensor of shape (N,); build it from the inputs, "
            "or use torch.full_like(an_input_of_shape_N, value)",
        )
    if tuple(value.shape) != (rows,):
        shape = ", ".join("N" if length == rows else str(length) for length in value.shape)
        comma = "," if value.dim() == 1 else ""
        raise RewardFault(
            Failure.SHAPE, f"{what} has shape ({shape}{comma}), not (N,); reduce over the last dimension, e.g. dim=-1"
        )
    if not value.dtype.is_floating_point:
        raise RewardFault(Failure.DTYPE, f"{what} has dtype {value.dtype}; convert it with .float()")
    return value.detach().to(torch.float32)


def kind_of(value: Any) -> str:
    """A value's type in words a person reads."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if isinstance(value, bool | int | float):
        return f"a plain number ({value})"
    return f"a {type(value).__name__}"


def describe(error: BaseException) -> str:
    """`TypeName: message`, the message cut to a readable length."""
    text = " ".join(str(error).split())[:500]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line_of(error: BaseException) -> int | None:
    """The last line of the reward that was running."""
    if isinstance(error, SyntaxError):
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == FILENAME]
    return lines[-1] if lines else None


def main(channel: Channel) -> None:
    """Serve until the trainer hangs up. The process is confined already."""
    worker = Worker()
    while True:
        try:
            message = channel.receive(FOREVER_S, max_bytes=1 << 20)
            channel.send(worker.handle(message, channel.take_fds()))
        except ChannelClosed:
            return
