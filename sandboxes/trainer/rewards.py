"""Computes rewards for a rollout: through a confined worker, or in process for the task's own sparse reward."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sandboxes.base import Failure, RewardProblem
from sandboxes.isolation.buffer import MAX_COMPONENTS, InputSpec, Layout, SharedBuffer
from sandboxes.isolation.channel import ChannelClosed, ChannelMalformed, ChannelTimeout
from sandboxes.isolation.process import Child, Ending, ZygoteClient
from sandboxes.trainer.fields import arguments
from synth.task import Parameter

_LOAD_DEADLINE_S = 20.0
_NAME_LIMIT = 80
SUM_TOLERANCE = 1e-4
LARGEST_VALUE = 1e12  # beyond it, sums and squares over a rollout would overflow single precision


class RewardFailed(Exception):
    """A reward that cannot be used any longer, with the problem to report."""

    def __init__(self, problem: RewardProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True)
class RewardValues:
    """What a reward returned for M rows: the reward (M,) and its components (C, M)."""

    reward: Tensor
    names: tuple[str, ...]
    components: Tensor


class Reward(Protocol):
    """A reward being computed: `submit` starts, `collect` waits, so that several run side by side."""

    parameters: tuple[str, ...]

    def submit(self, fields: dict[str, Tensor]) -> None:
        """Hand over parameter tensors (M, *shape)."""

    def collect(self) -> RewardValues:
        """The values for what was submitted last; RewardFailed when there are none."""

    def close(self) -> None:
        """Release the worker."""


class TrustedReward:
    """A function of this project (the sparse reward), computed in this process."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self.parameters = arguments(function)
        self._fields: dict[str, Tensor] = {}

    def submit(self, fields: dict[str, Tensor]) -> None:
        """See `Reward.submit`."""
        self._fields = fields

    def collect(self) -> RewardValues:
        """See `Reward.collect`."""
        reward = self.function(**self._fields).to(torch.float32)
        return RewardValues(reward, ("sparse",), reward.unsqueeze(0))

    def close(self) -> None:
        """Nothing to release."""


class WorkerReward:
    """A candidate's code in a worker process of its own, fed and read through shared memory."""

    def __init__(self, zygote: ZygoteClient, source: str, parameters: tuple[Parameter, ...], deadline_s: float) -> None:
        self.zygote, self.deadline_s = zygote, deadline_s
        self._specs = {p.name: p for p in parameters}
        self.parameters = tuple(self._specs)
        self._buffer: SharedBuffer | None = None
        self._rows = 0
        self._device: Any = "cpu"
        self.child: Child | None = zygote.spawn("worker")
        try:
            self._ask({"op": "load", "source": source}, _LOAD_DEADLINE_S)
        except RewardFailed:
            self.close()
            raise

    def submit(self, fields: dict[str, Tensor]) -> None:
        """See `Reward.submit`."""
        first = fields[self.parameters[0]]
        self._device = first.device
        if self._buffer is None or self._rows != first.shape[0]:
            self._map(first.shape[0])
        assert self._buffer is not None
        for name, shared in self._buffer.inputs.items():
            shared.copy_(fields[name])
        self._post({"op": "compute"})
        self._deadline = time.monotonic() + self.deadline_s

    def collect(self) -> RewardValues:
        """See `Reward.collect`."""
        assert self._buffer is not None
        reply = self._await(max(0.01, self._deadline - time.monotonic()))
        names = _checked_names(reply.get("components"))
        # A copy first: the worker could still be writing while we check.
        values = self._buffer.outputs[: 1 + len(names)].clone()
        self._check_finite(values, names)
        values = values.to(self._device)
        return RewardValues(values[0], names, values[1:])

    def scriptable(self) -> bool:
        """Whether TorchScript compiles the reward; not when its compiler hangs or dies."""
        try:
            return bool(self._ask({"op": "script"}, _LOAD_DEADLINE_S).get("scriptable"))
        except RewardFailed:
            return False

    def close(self) -> None:
        """Kill the worker and drop the buffer."""
        if self.child is not None:
            self.zygote.kill(self.child)
            self.child = None
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None

    def _map(self, rows: int) -> None:
        if self._buffer is not None:
            self._buffer.close()
        specs = tuple(InputSpec(p.name, p.field.shape, p.field.dtype) for p in self._specs.values())
        layout = Layout(specs, rows)
        self._buffer, self._rows = SharedBuffer(layout), rows
        self._ask({"op": "layout", **layout.as_message()}, _LOAD_DEADLINE_S, fds=(self._buffer.fd,))

    def _check_finite(self, values: Tensor, names: tuple[str, ...]) -> None:
        good = torch.isfinite(values).logical_and_(values.abs() <= LARGEST_VALUE)
        if bool(good.all()):
            return
        # A component's name says more than that the reward, their sum, is wrong.
        rows = [*range(1, len(names) + 1), 0]
        row = next(r for r in rows if not bool(good[r].all()))
        what = f"component '{names[row - 1]}'" if row else "the reward"
        bad, count = values[row][~good[row]], values.shape[1]
        if bool(torch.isfinite(bad).all()):
            fault = (
                f"larger than {LARGEST_VALUE:.0e} in {len(bad)} of {count} states; divide by something bounded below"
            )
        else:
            fault = (
                f"NaN or infinite in {len(bad)} of {count} states; guard divisions, roots and logarithms, "
                "e.g. torch.sqrt(x + 1e-6) or torch.clamp"
            )
        raise RewardFailed(RewardProblem(Failure.NON_FINITE, f"{what} is {fault}"))

    def _ask(self, message: dict[str, Any], timeout_s: float, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        self._post(message, fds)
        return self._await(timeout_s)

    def _post(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        if self.child is None:
            raise RewardFailed(RewardProblem(Failure.CRASHED, "the reward's process has ended"))
        try:
            self.child.channel.send(message, fds)
        except (ChannelClosed, ChannelTimeout):
            raise self._crashed() from None

    def _await(self, timeout_s: float) -> dict[str, Any]:
        assert self.child is not None
        try:
            reply = self.child.channel.receive(timeout_s)
        except ChannelTimeout:
            message = f"no answer within {timeout_s:.0f} s: an endless or far too slow computation"
            raise RewardFailed(RewardProblem(Failure.TIMEOUT, message)) from None
        except ChannelClosed:
            raise self._crashed() from None
        except ChannelMalformed as error:
            message = f"the reward's process answered with {error}"
            raise RewardFailed(RewardProblem(Failure.CRASHED, message)) from None
        if reply.get("ok") is not True:
            raise RewardFailed(_problem_of(reply))
        return reply

    def _crashed(self) -> RewardFailed:
        end = Ending(None) if self.child is None else self.zygote.ending(self.child)
        if end.reason is not None:
            return RewardFailed(RewardProblem(Failure.CRASHED, f"the reward's process was ended: {end.reason}"))
        if end.code == -signal.SIGSYS:
            message = "the reward tried what only hostile code does (a socket, a process, a signal): it was ended"
            return RewardFailed(RewardProblem(Failure.VIOLATION, message))
        how = f"killed by signal {-end.code}" if end.code is not None and end.code < 0 else f"exit code {end.code}"
        return RewardFailed(RewardProblem(Failure.CRASHED, f"the reward's process died ({how})"))


def _checked_names(names: Any) -> tuple[str, ...]:
    """Component names as claimed by the worker; the worker is not believed."""
    good = (
        isinstance(names, list)
        and len(names) <= MAX_COMPONENTS
        and all(isinstance(n, str) and 0 < len(n) <= _NAME_LIMIT and n.isprintable() for n in names)
        and len(set(names)) == len(names)
    )
    if not good:
        raise RewardFailed(RewardProblem(Failure.RETURN, "component names must be distinct, printable strings"))
    return tuple(names)


def _problem_of(reply: dict[str, Any]) -> RewardProblem:
    """A worker's own complaint, bounded: it comes from untrusted code."""
    try:
        kind = Failure(reply.get("kind"))
    except ValueError:
        kind = Failure.CRASHED
    line = reply.get("line")
    message = "".join(c if c.isprintable() else " " for c in str(reply.get("message", "no message"))[:2000])
    return RewardProblem(kind, message, line if isinstance(line, int) else None)


def sum_warning(values: RewardValues) -> str | None:
    """A warning when the components do not sum to the reward (1e-4 of the largest magnitude); never a rescale."""
    if not values.names:
        return "the reward has no components: nothing can be said about its parts"
    total = values.components.sum(dim=0)
    scale = max(float(values.reward.abs().max()), float(values.components.abs().sum(dim=0).max()), 1e-6)
    gap = float((total - values.reward).abs().max())
    if gap > SUM_TOLERANCE * scale:
        return f"the components do not sum to the reward (largest difference {gap:.3g})"
    return None
