"""The forms that a term of a reward can take, for each feature of a task: the contents of the grammar.

Goals pull the state somewhere (close to a value, inside a band, onwards); costs keep it calm; a constant pays for, or
presses against, every further step. Numbers come from the fields' ranges, so that terms have comparable sizes, and from
the task's text, which often names the value that is wanted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from synth.features import Feature, task_features
from synth.gbnf import Node, Rule, alt, seq
from synth.task import Task

_GOAL_WEIGHTS = (0.5, 1.0, 2.0, 5.0)
_COST_WEIGHTS = (0.01, 0.02, 0.05, 0.1, 0.2)
_CONSTANTS = (0.1, 0.2, 0.5, 1.0, 2.0)
_WIDTHS = (0.03, 0.06, 0.12, 0.25, 0.5)  # of a feature's scale
_STEP = 0.03  # usual change of a feature in one step, as a share of its scale


class Terms:
    """The terms of one task as grammar nodes, by feature; every term is a whole line."""

    def __init__(self, task: Task, indent: str) -> None:
        found = task_features(task)
        spoken = [float(n) for n in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", task.description)]
        gates = Rule("gate", alt(g for f in found if f.kind != "cost" for g in _gates(f)))
        self.errors = tuple(f.name for f in found if f.is_error)
        self.states = tuple(f.name for f in found if not f.is_rate and f.kind != "cost")
        self.rates = tuple(f.name for f in found if f.is_rate)
        self._goals = {f.name: _goal(f, spoken, gates) for f in found if f.name in self.states}
        self._goals |= {f.name: _drive(f, spoken) for f in found if f.is_rate}
        self._costs = {f.name: _cost(f) for f in found if f.is_rate or f.kind == "cost"}
        self.costs = tuple(self._costs)
        self._indent = indent
        self._first = next((f.name for f in found if f.definition is None), found[0].name)

    def goal(self, features: Sequence[str]) -> Node:
        """A goal on one of these features."""
        return self._line([self._goals[name] for name in features])

    def cost(self, features: Sequence[str]) -> Node:
        """A small price on one of these features."""
        return self._line([self._costs[name] for name in features])

    def constant(self) -> Node:
        """A constant for every step: living pays, or living costs."""
        ones = f" * torch.ones_like({self._first})"
        return self._line([seq("alive = ", numbers(_CONSTANTS), ones), seq("hurry = -", numbers(_CONSTANTS), ones)])

    def _line(self, forms: list[Node]) -> Node:
        return seq(self._indent, alt(forms), "\n")


def numbers(values: Iterable[float]) -> Node:
    """One of these values, written out."""
    return alt(dict.fromkeys(number(v) for v in values))


def number(value: float) -> str:
    """Two significant digits, never an exponent: 0.05, 1.5, 250.0. Sizes below 0.000001 are written as that."""
    if 0 < abs(value) < 1e-6:
        value = math.copysign(1e-6, value)
    text = f"{float(f'{value:.2g}'):.6f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _goal(f: Feature, spoken: list[float], gates: Node) -> Node:
    """Forms that pull a state feature somewhere; the name tells feature and form."""
    x, s = f.name, f.scale
    weight = numbers(_GOAL_WEIGHTS)
    if f.kind == "flag":
        return alt([seq(f"{x}_bonus = ", weight, f" * {x}"), seq(f"{x}_penalty = -", weight, f" * {x}")])
    if f.kind == "cosine":
        return alt(
            [
                seq(f"{x}_bonus = ", weight, f" * {x}"),
                seq(f"{x}_bonus_gated = ", weight, f" * (0.5 + 0.5 * {x}) * ", gates),
                seq(f"{x}_within = ", weight, f" * ({x} > ", numbers((0.7, 0.9, 0.95, 0.98)), ").float()"),
                _progress(f),
            ]
        )
    size = x if f.kind == "positive" else f"torch.abs({x})"
    bell = seq("torch.exp(-", _narrow(f), f" * torch.square({x}))")
    forms = [
        seq(f"{x}_penalty = -", _either(f, size, _GOAL_WEIGHTS)),
        seq(f"{x}_close = ", weight, " * ", bell),
        seq(f"{x}_close_gated = ", weight, " * ", bell, " * ", gates),
        seq(f"{x}_within = ", weight, f" * ({size} < ", numbers(w * s for w in _WIDTHS), ").float()"),
    ]
    onwards = _onwards(f, spoken)
    if onwards:
        forms.append(alt(onwards))
    if f.previous is not None:
        forms.append(_progress(f))
    return alt(forms)


def _onwards(f: Feature, spoken: list[float]) -> list[Node]:
    """Pulls to a value that the task's text names, or ever further."""
    x, s = f.name, f.scale
    weight, linear = numbers(_GOAL_WEIGHTS), numbers(w / s for w in _GOAL_WEIGHTS)
    forms: list[Node] = []
    targets = _targets(f, spoken)
    if targets:
        offset, limit = alt(dict.fromkeys(_minus(t) for t in targets)), alt(dict.fromkeys(_signed(t) for t in targets))
        forms += [
            seq(f"{x}_at = ", weight, " * torch.exp(-", _narrow(f), f" * torch.square({x}", offset, "))"),
            seq(f"{x}_off = -", linear, f" * torch.abs({x}", offset, ")"),
            seq(f"{x}_above = ", weight, f" * ({x} > ", limit, ").float()"),
        ]
    forms.append(seq(f"{x}_up = ", linear, f" * {x}"))
    if f.kind == "signed":
        forms.append(seq(f"{x}_down = -", linear, f" * {x}"))
    return forms


def _drive(f: Feature, spoken: list[float]) -> Node:
    """Forms that want a rate: the value that the task's text names, or simply much of it."""
    x, s = f.name, f.scale
    size = x if f.kind == "positive" else f"torch.abs({x})"
    forms: list[Node] = [seq(f"{x}_more = ", _either(f, size, _GOAL_WEIGHTS))]
    targets = _targets(f, spoken)
    if targets:
        offset = alt(dict.fromkeys(_minus(t) for t in targets))
        weight, linear = numbers(_GOAL_WEIGHTS), numbers(w / s for w in _GOAL_WEIGHTS)
        forms += [
            seq(f"{x}_at = ", weight, " * torch.exp(-", _narrow(f), f" * torch.square({x}", offset, "))"),
            seq(f"{x}_off = -", linear, f" * torch.abs({x}", offset, ")"),
        ]
    return alt(forms)


def _cost(f: Feature) -> Node:
    """A small price on speed or effort."""
    size = f.name if f.kind in ("positive", "cost") else f"torch.abs({f.name})"
    return seq(f"{f.name}_penalty = -", _either(f, size, _COST_WEIGHTS))


def _either(f: Feature, size: str, weights: Iterable[float]) -> Node:
    """Proportional to the size or to its square; worth the weight at the feature's scale."""
    weights = tuple(weights)
    linear, square = numbers(w / f.scale for w in weights), numbers(w / f.scale**2 for w in weights)
    if f.kind == "cost":
        return seq(linear, f" * {size}")
    return alt([seq(linear, f" * {size}"), seq(square, f" * torch.square({f.name})")])


def _narrow(f: Feature) -> Node:
    """Factors that make a bell curve as wide as a share of the feature's scale."""
    return numbers(1.0 / (w * f.scale) ** 2 for w in _WIDTHS)


def _targets(f: Feature, values: list[float]) -> list[float]:
    """Those of the values that lie within the feature's range; zero has forms of its own."""
    low = f.low if f.low is not None else -f.scale
    high = f.high if f.high is not None else f.scale
    return [v for v in values if low < v < high and v != 0.0]


def _minus(value: float) -> str:
    return f" - {number(value)}" if value > 0 else f" + {number(-value)}"


def _signed(value: float) -> str:
    return number(value) if value >= 0 else f"-{number(-value)}"


def _progress(f: Feature) -> Node:
    """Change since the step before: of the value, of its size."""
    gain = numbers(w / (f.scale * _STEP) for w in _GOAL_WEIGHTS)
    before, x = f.previous, f.name
    forms = [seq(f"{x}_gain = ", gain, f" * ({x} - {before})")]
    if f.kind == "signed":
        forms.append(seq(f"{x}_size_gain = ", gain, f" * (torch.abs({x}) - torch.abs({before}))"))
        forms.append(seq(f"{x}_size_drop = ", gain, f" * (torch.abs({before}) - torch.abs({x}))"))
    elif f.kind == "positive":
        forms.append(seq(f"{x}_drop = ", gain, f" * ({before} - {x})"))
    return alt(forms)


def _gates(f: Feature) -> list[Node]:
    """Factors in [0, 1] that switch another term on."""
    x = f.name
    if f.kind == "flag":
        return [seq(f"(1.0 - {x})")]
    if f.kind == "cosine":
        return [seq(f"(0.5 + 0.5 * {x})")]
    return [seq("torch.exp(-", numbers(1.0 / (w * f.scale) ** 2 for w in _WIDTHS), f" * torch.square({x}))")]
