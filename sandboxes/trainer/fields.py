"""Records the state fields that rewards and metrics read, with `prev_`, `initial_` and `time`, episode by episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from sandboxes.base import Simulator

_PREV, _INITIAL = "prev_", "initial_"


class FieldRecorder:
    """Keeps one tensor per step for every parameter asked for.

    Semantics: a field is its value after the step and before any reset; `prev_x` is the value one step earlier (at an
    episode's first step: at reset), `initial_x` the value at reset; `time` the seconds since reset, counted after the
    step. The action at reset is zero.
    """

    def __init__(self, simulator: Simulator, parameters: Iterable[str]) -> None:
        self.simulator = simulator
        self.parameters = sorted(set(parameters))
        self.steps = torch.zeros(simulator.num_envs, dtype=torch.int64, device=simulator.device)
        self._current: dict[str, Tensor] = {}
        self._initial: dict[str, Tensor] = {}
        self._recorded: dict[str, list[Tensor]] = {}

    def start(self) -> None:
        """Read the state of freshly reset environments."""
        self._current = self._read(self._no_action())
        self._initial = {n: self._current[n.removeprefix(_INITIAL)] for n in self.parameters if self._is(n, _INITIAL)}

    def begin_rollout(self) -> None:
        """Forget what was recorded."""
        self._recorded = {name: [] for name in self.parameters}

    def after_step(self, action: Tensor) -> None:
        """Record the step just taken; `action` as given to the simulator, (B, A) or (B,) int64."""
        before, self._current = self._current, self._read(self._as_field(action))
        self.steps = self.steps + 1
        for name, store in self._recorded.items():
            if name == "time":
                store.append(self.steps.to(torch.float32) * self.simulator.dt)
            elif self._is(name, _PREV):
                store.append(before[name.removeprefix(_PREV)])
            elif self._is(name, _INITIAL):
                store.append(self._initial[name])
            else:
                store.append(self._current[name])

    def after_reset(self, mask: Tensor) -> None:
        """Environments in `mask` (B,) began a new episode."""
        fresh = self._read(self._no_action())
        self._current = {n: _where(mask, fresh[n], value) for n, value in self._current.items()}
        self._initial = {n: _where(mask, fresh[n.removeprefix(_INITIAL)], v) for n, v in self._initial.items()}
        self.steps = torch.where(mask, 0, self.steps)

    def end_rollout(self) -> dict[str, Tensor]:
        """Parameter name to (H, B, *shape)."""
        return {name: torch.stack(values) for name, values in self._recorded.items()}

    def _is(self, name: str, prefix: str) -> bool:
        """Whether `name` is that prefix on a field, and not a field that happens to begin so."""
        return name.startswith(prefix) and name not in self._current

    def _read(self, action: Tensor) -> dict[str, Tensor]:
        return {**self.simulator.fields(), "action": action}

    def _no_action(self) -> Tensor:
        size = self.simulator.action_spec.size
        return torch.zeros(self.simulator.num_envs, size, device=self.simulator.device)

    def _as_field(self, action: Tensor) -> Tensor:
        spec = self.simulator.action_spec
        if spec.discrete:
            return torch.nn.functional.one_hot(action, spec.size).to(torch.float32)
        return action.clamp(-1.0, 1.0)


def _where(mask: Tensor, chosen: Tensor, other: Tensor) -> Tensor:
    return torch.where(mask.view(-1, *([1] * (chosen.dim() - 1))), chosen, other)


def arguments(function: Callable[..., object]) -> tuple[str, ...]:
    """Names of a function's parameters, in order."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
