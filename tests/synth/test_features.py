"""Features: their definitions, executed in torch, mean what their names say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from synth.features import Feature, task_features
from synth.task import StateField, Task, discover_tasks, load_task

ACTION = StateField("action", (2,), "1", "two motors", low=-1.0, high=1.0)


def task_of(*fields: StateField) -> Task:
    return Task("made_up", Path(), "Do it.", "none", (*fields, ACTION), 0.5)


def features_of(*fields: StateField) -> dict[str, Feature]:
    return {f.name: f for f in task_features(task_of(*fields))}


def value(expression: str | None, **fields: Tensor) -> Tensor:
    assert expression is not None
    result: Tensor = eval(expression, {"torch": torch, **fields})
    return result


def field(
    name: str,
    shape: tuple[int, ...] = (),
    unit: str = "m",
    high: float | None = 2.0,
) -> StateField:
    low = None if high is None else -high
    return StateField(name, shape, unit, "", low=low, high=high)


def test_distance_is_measured_between_body_and_target() -> None:
    found = features_of(field("goal_pos", (2,)), field("hand_pos", (2,)))["hand_to_goal"]
    hand, goal = torch.tensor([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]])
    assert value(found.definition, hand_pos=hand, goal_pos=goal).tolist() == [5.0, 0.0]
    assert value(found.previous, prev_hand_pos=goal, prev_goal_pos=hand).tolist() == [5.0, 0.0]
    assert (found.kind, found.is_error) == ("positive", True)


def test_difference_of_scalars_is_signed_towards_the_target() -> None:
    found = features_of(field("target_height"), field("height"))["height_error"]
    assert value(found.definition, height=torch.tensor([1.0]), target_height=torch.tensor([3.0])).tolist() == [-2.0]
    assert found.kind == "signed"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (field("goal_pos", (3,)), field("hand_pos", (2,))),
        (field("goal_speed", unit="m/s"), field("height")),
        (field("goal_a"), field("goal_b")),
        (field("speed", unit="m/s"), field("drift", unit="m/s")),
    ],
)
def test_what_cannot_be_compared_makes_no_distance(first: StateField, second: StateField) -> None:
    assert not [name for name in features_of(first, second) if "_to_" in name or name.endswith("_error")]


def test_cosine_of_a_full_turn_only() -> None:
    turning = features_of(field("angle", unit="rad", high=math.pi))
    found = value(turning["cos_angle"].definition, angle=torch.tensor([0.0, math.pi, math.pi / 2]))
    torch.testing.assert_close(found, torch.tensor([1.0, -1.0, 0.0]), rtol=0.0, atol=1e-6)
    assert "cos_angle" not in features_of(field("angle", unit="rad", high=0.5))


def test_uprightness_is_the_rotated_z_axis() -> None:
    generator = torch.Generator().manual_seed(0)
    quaternion = torch.nn.functional.normalize(torch.randn(50, 4, generator=generator), dim=-1)
    found = features_of(field("body_quat", (4,), unit="quaternion", high=1.0))["body_quat_upright"]
    got = value(found.definition, body_quat=quaternion)
    # q * z * q^-1 by Hamilton's product, not by the matrix the definition was read from.
    w, v = quaternion[:, :1], quaternion[:, 1:]
    z = torch.tensor([0.0, 0.0, 1.0]).expand(50, 3)
    cross = torch.linalg.cross(v, z) + w * z
    rotated = z + 2.0 * torch.linalg.cross(v, cross)
    torch.testing.assert_close(got, rotated[:, 2], rtol=0.0, atol=1e-5)
    torch.testing.assert_close(value(found.previous, prev_body_quat=quaternion), got)


def test_vectors_give_size_and_coordinates_and_targets_neither() -> None:
    found = features_of(field("hand_vel", (3,), unit="m/s"), field("goal_pos", (3,)))
    hand = torch.tensor([[2.0, -3.0, 6.0]])
    assert value(found["hand_vel_size"].definition, hand_vel=hand).tolist() == [7.0]
    coordinates = [value(found[f"hand_vel_{a}"].definition, hand_vel=hand).item() for a in "xyz"]
    assert coordinates == [2.0, -3.0, 6.0]
    assert all(found[n].is_rate for n in ("hand_vel_size", "hand_vel_x"))
    assert not [n for n in found if n.startswith("goal_pos")]


def test_flags_images_and_effort() -> None:
    found = features_of(
        StateField("touching", (), "1", "", dtype="bool"), field("depths", (2, 2)), field("height", high=None)
    )
    assert value(found["is_touching"].definition, touching=torch.tensor([True, False])).tolist() == [1.0, 0.0]
    assert value(found["depths_size"].definition, depths=torch.ones(1, 2, 2)).tolist() == [2.0]
    assert value(found["effort"].definition, action=torch.tensor([[1.0, -2.0]])).tolist() == [5.0]
    assert found["height"].scale == 1.0


@pytest.mark.parametrize("name", discover_tasks())
def test_bundled_tasks_have_distinct_features_that_compute(name: str) -> None:
    task = load_task(name)
    found = task_features(task)
    assert len({f.name for f in found}) == len(found)
    assert "effort" in {f.name for f in found}
    values = {
        prefix + f.name: torch.ones((3, *f.shape), dtype=torch.bool if f.dtype == "bool" else torch.float32)
        for f in task.fields
        for prefix in ("", "prev_")
    }
    for feature in found:
        assert feature.scale > 0
        for expression in (feature.definition or feature.name, feature.previous):
            if expression is not None:
                result = value(expression, **values)
                assert result.shape == (3,), feature
                assert result.dtype == torch.float32, feature


def test_a_field_of_a_features_name_is_not_hidden() -> None:
    """`effort` may be a field: then the feature that would be called the same must not replace it."""
    found = features_of(field("effort", unit="N"), field("hand_pos", (2,)), field("hand_pos_size"))
    assert found["effort"].definition is None
    assert found["hand_pos_size"].definition is None
