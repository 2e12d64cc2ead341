"""Named scalars of a task that reward terms are built from, derived from its state fields alone.

A vector field gives its size and its coordinates, two of the same kind give their distance, an angle its cosine, a
quaternion its uprightness. The grammar writes terms over these names; the definitions of those used stand above them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from synth.task import StateField, Task

_TARGET_WORDS = ("goal", "target", "desired", "pad", "beacon", "gate", "waypoint")
_AXES = "xyz"


@dataclass(frozen=True)
class Feature:
    """One scalar per environment, (N,) float32.

    `kind`: signed (both signs occur), positive (a size or distance), cosine (in [-1, 1], 1 is aligned), flag (0 or 1),
    cost (never wanted: the action's effort).
    `scale`: the largest size that is usual, from the fields' ranges. `definition` is None for a plain scalar field.
    """

    name: str
    kind: Literal["signed", "positive", "cosine", "flag", "cost"]
    scale: float
    definition: str | None
    low: float | None = None
    high: float | None = None
    previous: str | None = None  # the same one step earlier, as an expression
    is_rate: bool = False  # a velocity or another change per time
    is_error: bool = False  # the distance or difference to a target

    def line(self) -> str | None:
        """The definition as a statement."""
        return None if self.definition is None else f"{self.name} = {self.definition}"


def task_features(task: Task) -> tuple[Feature, ...]:
    """Every feature of the task, the telling ones (distances) first; names are distinct."""
    found: list[Feature] = []
    for first, second in _pairs(task):
        found.append(_difference(first, second))
    for item in task.fields:
        if item.name == "action":
            found.append(Feature("effort", "cost", float(item.size), "torch.sum(torch.square(action), dim=-1)"))
        else:
            found.extend(_of_field(item))
    unique: dict[str, Feature] = {}
    for feature in found:
        if feature.name not in {f.name for f in task.fields} or feature.definition is None:
            unique.setdefault(feature.name, feature)
    return tuple(unique.values())


def _of_field(item: StateField) -> list[Feature]:
    if item.dtype == "bool":
        return [] if item.shape else [Feature(f"is_{item.name}", "flag", 1.0, f"{item.name}.float()")]
    if not item.shape:
        return _of_scalar(item)
    if item.shape == (4,) and "quat" in (item.unit + item.name).lower():
        return _of_quaternion(item)
    if len(item.shape) != 1:
        flat = f"{item.name}.flatten(1)"
        return [Feature(f"{item.name}_size", "positive", _scale(item), f"torch.norm({flat}, dim=-1)")]
    return _of_vector(item)


def _of_scalar(item: StateField) -> list[Feature]:
    kind: Literal["signed", "positive"] = "positive" if item.low is not None and item.low >= 0 else "signed"
    plain = Feature(
        item.name, kind, _scale(item), None, item.low, item.high, f"prev_{item.name}", is_rate=_is_rate(item)
    )
    if not _is_full_turn(item):
        return [plain]
    cosine = f"torch.cos({item.name})"
    return [plain, Feature(f"cos_{item.name}", "cosine", 1.0, cosine, previous=f"torch.cos(prev_{item.name})")]


def _is_rate(item: StateField) -> bool:
    return "/s" in item.unit or "/step" in item.unit


def _is_full_turn(item: StateField) -> bool:
    return item.unit == "rad" and item.high is not None and abs(item.high - math.pi) < 0.05


def _of_vector(item: StateField) -> list[Feature]:
    name, scale = item.name, _scale(item)
    if _is_full_turn(item):
        sizes: list[Feature] = []
    else:
        now, before = f"torch.norm({name}, dim=-1)", f"torch.norm(prev_{name}, dim=-1)"
        sizes = [Feature(f"{name}_size", "positive", scale, now, 0.0, scale, before, is_rate=_is_rate(item))]
    if _is_target(item):
        return []  # a place to be reached says nothing by itself
    if item.shape[0] > len(_AXES):
        return sizes
    parts = [
        Feature(
            f"{name}_{axis}",
            "signed",
            scale,
            f"{name}[:, {i}]",
            item.low,
            item.high,
            f"prev_{name}[:, {i}]",
            is_rate=_is_rate(item),
        )
        for i, axis in enumerate(_AXES[: item.shape[0]])
    ]
    return [*sizes, *parts]


def _of_quaternion(item: StateField) -> list[Feature]:
    """Cosine of the tilt: how far the body's z axis points along the world's, for (w, x, y, z)."""
    name = item.name
    now = f"1.0 - 2.0 * (torch.square({name}[:, 1]) + torch.square({name}[:, 2]))"
    return [Feature(f"{name}_upright", "cosine", 1.0, now, previous=now.replace(name, f"prev_{name}"))]


def _pairs(task: Task) -> list[tuple[StateField, StateField]]:
    """Fields that can be subtracted: same shape and unit, lengths, where exactly one is a target or both are bodies."""
    pairs = []
    candidates = [f for f in task.fields if f.name != "action" and f.dtype == "float32" and len(f.shape) <= 1]
    for i, first in enumerate(candidates):
        for second in candidates[i + 1 :]:
            if first.shape != second.shape or first.unit != second.unit or "quat" in first.unit:
                continue
            targets = [_is_target(f) for f in (first, second)]
            bodies = first.unit == "m" and bool(first.shape)
            if sum(targets) == 1 or (sum(targets) == 0 and bodies):
                pairs.append((second, first) if targets[0] else (first, second))
    return pairs


def _difference(first: StateField, second: StateField) -> Feature:
    scale = max(_scale(first), _scale(second))
    to_target = _is_target(first) or _is_target(second)
    if first.shape:
        name = f"{_short(first.name)}_to_{_short(second.name)}"
        now = f"torch.norm({first.name} - {second.name}, dim=-1)"
        before = f"torch.norm(prev_{first.name} - prev_{second.name}, dim=-1)"
        return Feature(name, "positive", scale, now, 0.0, scale, before, is_error=to_target)
    now, before = f"{first.name} - {second.name}", f"prev_{first.name} - prev_{second.name}"
    name = f"{_short(first.name)}_error"
    return Feature(name, "signed", scale, now, -scale, scale, before, is_error=to_target)


def _is_target(item: StateField) -> bool:
    return any(word in item.name for word in _TARGET_WORDS)


def _short(name: str) -> str:
    return re.sub(r"_(pos|position|location)$", "", name)


def _scale(item: StateField) -> float:
    ends = [abs(end) for end in (item.low, item.high) if end is not None]
    return max([*ends, 1e-3]) if ends else 1.0
