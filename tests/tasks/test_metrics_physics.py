"""Metrics of the tasks on simulators of our own: what they say of trajectories whose worth is plain."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sandboxes.trainer.trusted import load_metric
from synth.task import load_task

T, B = 40, 3


def score(task: str, **fields: Tensor) -> list[float]:
    values = load_metric(load_task(task)).compute(**fields)
    assert values.shape == (B,)
    assert bool(((values >= 0.0) & (values <= 1.0)).all())
    return [float(v) for v in values]


def full(*shape: int, value: float = 0.0) -> Tensor:
    return torch.full((T, B, *shape), value)


def staying(start: int) -> Tensor:
    """(T, B) true from step `start` on."""
    return (torch.arange(T) >= start).unsqueeze(-1).expand(T, B)


def test_quadrotor_hover():
    goal = full(3, value=1.0)
    good = {"velocity": full(3), "goal_pos": goal, "valid": staying(0)}
    assert score("quadrotor_hover", position=goal + 0.05, **good) == [1.0] * B
    assert score("quadrotor_hover", position=goal + 0.2, **good) == [0.0] * B
    assert score("quadrotor_hover", position=goal, **{**good, "velocity": full(3, value=0.4)}) == [0.0] * B
    assert score("quadrotor_hover", position=goal, **{**good, "valid": ~staying(30)}) == [0.5] * B


def test_rocket_landing():
    end, still = full(2), full(2)
    landed = torch.zeros(T, B, dtype=torch.bool)
    crashed = score("rocket_landing", position=end, velocity=full(2, value=-5.0), landed=landed)
    far = score("rocket_landing", position=full(2, value=10.0), velocity=still, landed=landed)
    assert all(v < 0.1 for v in crashed)
    assert all(v < 0.1 for v in far)
    landed[-5:, 1] = True
    assert score("rocket_landing", position=end, velocity=still, landed=landed) == [0.5, 1.0, 0.5]


def test_planar_push():
    goal = full(2, value=0.3)
    late = torch.where(staying(32).unsqueeze(-1), goal, goal + 1.0)
    assert score("planar_push", puck_pos=goal + 0.05, goal_pos=goal) == [1.0] * B
    assert score("planar_push", puck_pos=goal + 0.06, goal_pos=goal) == [0.0] * B
    assert score("planar_push", puck_pos=late, goal_pos=goal) == [0.5] * B


def test_point_maze():
    goal = full(2, value=1.0)
    late = torch.where(staying(30).unsqueeze(-1), goal, goal - 1.0)
    assert score("point_maze", position=goal + 0.1, goal_pos=goal) == [1.0] * B
    assert score("point_maze", position=goal + 0.11, goal_pos=goal) == [0.0] * B
    assert score("point_maze", position=late, goal_pos=goal) == [0.5] * B


@pytest.mark.parametrize(
    ("name", "value"), [("position", 0.12), ("heading_left", -0.31), ("speed", 0.16), ("speed", -0.16)]
)
def test_unicycle_park(name: str, value: float):
    good = {"position": full(2), "goal_pos": full(2), "heading_left": full(), "speed": full(), "valid": staying(0)}
    assert score("unicycle_park", **good) == [1.0] * B
    assert score("unicycle_park", **{**good, name: torch.full_like(good[name], value)}) == [0.0] * B
    assert score("unicycle_park", **{**good, "valid": ~staying(32)}) == [0.5] * B


def orbit(radius: float, speed: float) -> dict[str, Tensor]:
    """Driving along a circle around the middle; a negative speed is clockwise."""
    angle = (torch.arange(T) * 0.1 * speed / radius).unsqueeze(-1).expand(T, B)
    heading = angle + math.copysign(math.pi / 2.0, speed)
    position = radius * torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)
    return {"position": position, "heading": heading, "speed": full(value=abs(speed)), "valid": staying(0)}


def test_unicycle_orbit():
    assert score("unicycle_orbit", **orbit(1.0, 0.8)) == [1.0] * B
    assert score("unicycle_orbit", **orbit(1.0, -0.8)) == [0.0] * B
    assert score("unicycle_orbit", **orbit(1.0, 0.5)) == [0.0] * B
    assert score("unicycle_orbit", **orbit(1.3, 0.8)) == [0.0] * B
    backwards = {**orbit(1.0, 0.8), "speed": full(value=-0.8)}
    assert score("unicycle_orbit", **backwards) == [0.0] * B


@pytest.mark.parametrize("task", ["quadrotor_hover", "planar_push", "point_maze", "unicycle_park", "unicycle_orbit"])
def test_the_sparse_reward_is_the_metrics_own_criterion(task: str):
    """On constant trajectories the metric is 1 exactly where the sparse reward is 1 at every step."""
    loaded = load_task(task)
    metric = load_metric(loaded)
    generator = torch.Generator().manual_seed(3)
    rows = {}
    for field in loaded.fields:
        spread = 0.3 if field.shape else 0.6
        rows[field.name] = torch.randn(512, *field.shape, generator=generator) * spread
    names = metric.sparse.__code__.co_varnames[: metric.sparse.__code__.co_argcount]
    sparse = metric.sparse(**{n: rows[n] for n in names})
    whole = {n: rows[n].unsqueeze(0).expand(10, *rows[n].shape) for n in names}
    if "valid" in metric.compute.__code__.co_varnames:
        whole["valid"] = torch.ones(10, 512, dtype=torch.bool)
    assert torch.equal(metric.compute(**whole), sparse)
    assert 0.0 < float(sparse.mean()) < 1.0
