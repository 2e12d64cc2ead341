"""The simulators that Gymnasium does not have, held against closed forms and against the laws they claim to follow."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sandboxes.base import RewardSource, TrainingRequest
from sandboxes.pool import Pool
from sandboxes.torch_sim import planar_push, point_maze, quadrotor, unicycle
from sandboxes.torch_sim.planar_push import PlanarPush
from sandboxes.torch_sim.point_maze import PointMaze
from sandboxes.torch_sim.quadrotor import Quadrotor
from sandboxes.torch_sim.rng import env_seeds
from sandboxes.torch_sim.rocket import Rocket
from sandboxes.torch_sim.unicycle import Unicycle
from synth.task import load_task


def actions(steps: int, envs: int, size: int, seed: int) -> Tensor:
    return torch.rand(steps, envs, size, generator=torch.Generator().manual_seed(seed)) * 2.0 - 1.0


def constant(*values: float) -> Tensor:
    return torch.tensor([values])


# Rocket


def test_a_rocket_without_thrust_falls_freely():
    simulator = Rocket(env_seeds(0, 1))
    simulator.state = torch.tensor([[1.0, 20.0, 2.0, -1.0, 0.3, 0.0]])
    for _ in range(10):
        simulator.step(constant(-1.0, 1.0))
    x, height, drift, climb, tilt, spin = simulator.state[0].tolist()
    assert climb == pytest.approx(-1.0 - 9.8, abs=1e-4)
    assert height == pytest.approx(20.0 - 1.0 - 4.9, abs=9.8 * 0.5 * 0.05 + 1e-4)  # Euler's error: one substep's fall
    assert (x, drift, tilt, spin) == pytest.approx((3.0, 2.0, 0.3, 0.0), abs=1e-4)


def test_a_rocket_hovers_at_half_throttle_and_leans_where_the_engine_pushes():
    simulator = Rocket(env_seeds(0, 1))
    simulator.state = torch.tensor([[0.0, 10.0, 0.0, 0.0, 0.0, 0.0]])
    for _ in range(20):
        simulator.step(constant(0.0, 0.0))
    assert simulator.state[0].tolist() == pytest.approx([0.0, 10.0, 0.0, 0.0, 0.0, 0.0], abs=1e-4)
    simulator.step(constant(0.0, 1.0))
    assert simulator.state[0, 5] > 0.1  # turns to the right
    assert simulator.state[0, 2] < 0.0  # while the engine pushes to the left


@pytest.mark.parametrize(
    ("change", "soft"),
    [((), True), ((0, 2.1), False), ((2, -2.1), False), ((3, -2.1), False), ((4, 0.3), False), ((1, 0.5), False)],
)
def test_only_a_soft_upright_touchdown_on_the_pad_is_a_landing(change: tuple[int, float], soft: bool):
    simulator = Rocket(env_seeds(0, 1))
    state = torch.tensor([[0.5, -0.01, 0.5, -1.0, 0.1, 0.0]])
    if change:
        state[0, change[0]] = change[1]
    simulator.state = state
    assert bool(simulator.fields()["landed"]) is soft
    assert bool(simulator.fields()["touchdown"]) is (change[:1] != (1,))


# Quadrotor


def test_quaternions_agree_with_rotation_matrices():
    rng = torch.Generator().manual_seed(1)
    first, second = (quadrotor.exponential(torch.randn(64, 3, generator=rng)) for _ in range(2))
    product = quadrotor.rotation_matrix(quadrotor.multiply(first, second))
    torch.testing.assert_close(product, quadrotor.rotation_matrix(first) @ quadrotor.rotation_matrix(second))
    torch.testing.assert_close(quadrotor.rotation_matrix(first)[:, :, 2], quadrotor.body_up(first))
    vector = torch.randn(64, 3, generator=rng)
    skew = torch.zeros(64, 3, 3)
    skew[:, 0, 1], skew[:, 0, 2], skew[:, 1, 2] = -vector[:, 2], vector[:, 1], -vector[:, 0]
    matrix = torch.linalg.matrix_exp(skew - skew.transpose(1, 2))
    torch.testing.assert_close(quadrotor.rotation_matrix(quadrotor.exponential(vector)), matrix, atol=1e-5, rtol=0.0)


def level(height: float = 1.5) -> Tensor:
    return torch.tensor([[0.0, 0.0, height, 0, 0, 0, 1.0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, height]])


def test_a_level_quadrotor_hovers_without_action():
    simulator = Quadrotor(env_seeds(0, 1))
    simulator.state = level()
    for _ in range(40):
        simulator.step(torch.zeros(1, 4))
    torch.testing.assert_close(simulator.state, level(), atol=1e-4, rtol=0.0)


@pytest.mark.parametrize(
    ("rotors", "axis", "sign"),
    [((1, -1, 1, -1), 0, 1), ((-1, -1, 1, 1), 1, 1), ((1, -1, -1, 1), 2, 1), ((-1, 1, -1, 1), 0, -1)],
)
def test_rotor_pairs_turn_one_axis_each(rotors: tuple[int, ...], axis: int, sign: int):
    simulator = Quadrotor(env_seeds(0, 1))
    simulator.state = level()
    simulator.step(torch.tensor([rotors], dtype=torch.float32))
    turning = simulator.state[0, 10:13]
    assert sign * float(turning[axis]) > 0.05
    assert float(turning.abs().sum()) == pytest.approx(float(turning[axis].abs()), abs=1e-5)


def test_more_thrust_climbs_as_newton_says():
    simulator = Quadrotor(env_seeds(0, 1))
    simulator.state = level()
    for _ in range(10):
        simulator.step(torch.ones(1, 4))
    climb, seconds, drag = float(simulator.state[0, 5]), 0.5, quadrotor.DRAG
    expected = quadrotor.AUTHORITY * quadrotor.GRAVITY / drag * (1.0 - math.exp(-drag * seconds))
    assert climb == pytest.approx(expected, rel=0.01)


def test_attitude_follows_eulers_equations():
    """A thousand times finer steps in double precision give nearly the same attitude."""
    simulator = Quadrotor(env_seeds(3, 1))
    state = simulator.state.clone()
    state[:, 10:13] = torch.tensor([[2.0, -1.5, 1.0]])
    simulator.state = state
    q, w = state[0, 6:10].double().numpy(), state[0, 10:13].double().numpy()
    inertia, step = np.array(quadrotor.INERTIA), 0.05 / 2000
    for _ in range(2000):
        w = w + step * (-np.cross(w, inertia * w) / inertia - quadrotor.SPIN_DRAG * w)
        x = np.concatenate([[0.0], w])
        dq = 0.5 * np.array(
            [
                q[0] * x[0] - q[1:] @ x[1:],
                *(q[0] * x[1:] + x[0] * q[1:] + np.cross(q[1:], x[1:])),
            ]
        )
        q = q + step * dq
    simulator.step(torch.zeros(1, 4))
    np.testing.assert_allclose(simulator.state[0, 6:10].numpy(), q / np.linalg.norm(q), atol=2e-3)


def test_the_attitude_stays_a_unit_quaternion():
    simulator = Quadrotor(env_seeds(0, 32))
    for action in actions(100, 32, 4, 5):
        simulator.step(action)
    assert float((torch.linalg.vector_norm(simulator.state[:, 6:10], dim=-1) - 1.0).abs().max()) < 1e-5


# Unicycle


@pytest.mark.parametrize(("speed", "turn"), [(1.0, 0.5), (-0.7, -1.0), (0.5, 0.0), (0.0, 1.0)])
def test_a_vehicle_drives_along_a_circle(speed: float, turn: float):
    simulator = Unicycle(env_seeds(0, 1))
    v, w, heading = speed * unicycle.MAX_SPEED, turn * unicycle.MAX_TURN_RATE, 0.4
    simulator.state = torch.tensor([[0.2, -0.1, heading, v, w, 0.0, 0.0, 0.0]])
    for _ in range(12):
        simulator.step(constant(speed, turn))
    angle = heading + w * 1.2
    if w == 0.0:
        x, y = 0.2 + v * 1.2 * math.cos(heading), -0.1 + v * 1.2 * math.sin(heading)
    else:
        x = 0.2 + v / w * (math.sin(angle) - math.sin(heading))
        y = -0.1 - v / w * (math.cos(angle) - math.cos(heading))
    assert simulator.state[0, :2].tolist() == pytest.approx([x, y], abs=1e-4)
    turned = math.remainder(angle, 2.0 * math.pi)
    assert float(simulator.state[0, 2]) == pytest.approx(turned, abs=1e-4)


def test_a_vehicle_never_slips_sideways():
    simulator = Unicycle(env_seeds(1, 16))
    for action in actions(50, 16, 2, 2):
        before = simulator.state.clone()
        simulator.step(action)
        way = simulator.state[:, :2] - before[:, :2]
        middle = before[:, 2] + 0.5 * simulator.state[:, 4] * simulator.dt
        sideways = way[:, 1] * torch.cos(middle) - way[:, 0] * torch.sin(middle)
        assert float(sideways.abs().max()) < 1e-5


# Pushing


def test_an_untouched_puck_stays_and_a_pushed_one_soon_stops():
    simulator = PlanarPush(env_seeds(0, 1))
    state = torch.tensor([[-0.3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0]])
    simulator.state = state.clone()
    simulator.step(constant(-1.0, 0.0))
    assert torch.equal(simulator.state[0, 4:8], state[0, 4:8])
    assert not bool(simulator.fields()["touching"])
    simulator.state = state.clone()
    for _ in range(5):
        simulator.step(constant(1.0, 0.0))
    assert bool(simulator.fields()["touching"])
    assert float(simulator.state[0, 6]) > 0.5
    assert float(simulator.state[0, 5]) == 0.0  # pushed along the line of the centres
    speed, start = float(simulator.state[0, 6]), float(simulator.state[0, 4])
    for _ in range(10):
        simulator.step(constant(-1.0, 0.0))
    slid = float(simulator.state[0, 4]) - start
    assert torch.equal(simulator.state[0, 6:8], torch.zeros(2))
    assert slid == pytest.approx(speed**2 / (2.0 * planar_push.FRICTION), abs=0.03)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**20))
def test_discs_do_not_overlap_away_from_the_rim(seed: int):
    simulator = PlanarPush(env_seeds(seed, 16))
    for action in actions(40, 16, 2, seed).mul(3.0).clamp(-1.0, 1.0):
        simulator.step(action)
        pusher, puck = simulator.state[:, :2], simulator.state[:, 4:6]
        inside = (puck.abs() < planar_push.TABLE - planar_push.PUCK_RADIUS - 0.01).all(dim=-1)
        gap = torch.linalg.vector_norm(puck - pusher, dim=-1) - planar_push.PUSHER_RADIUS - planar_push.PUCK_RADIUS
        assert float(gap[inside].min() if bool(inside.any()) else 0.0) > -1e-5


# Maze


def depth_in_walls(position: Tensor) -> float:
    """How far the deepest disc reaches into a wall, in m."""
    deepest = 0.0
    for wall in torch.tensor(point_maze.WALLS):
        nearest = torch.minimum(torch.maximum(position, wall[0::2]), wall[1::2])
        distance = torch.linalg.vector_norm(position - nearest, dim=-1)
        deepest = max(deepest, float((point_maze.RADIUS - distance).max()))
    return deepest


def inside_the_u(position: Tensor) -> Tensor:
    return (position[:, 0] > -0.5) & (position[:, 0] < 0.4) & (position[:, 1].abs() < 0.5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**20), hold=st.sampled_from([1, 4, 20]))
def test_no_disc_enters_or_tunnels_through_a_wall(seed: int, hold: int):
    """Random throttles held for a while: a disc that leaves the U does so through its opening."""
    simulator = PointMaze(env_seeds(seed, 32))
    throttles = actions(60, 32, 2, seed).mul(4.0).clamp(-1.0, 1.0)
    for step in range(60):
        before = simulator.state[:, :2].clone()
        simulator.step(throttles[step // hold])
        after = simulator.state[:, :2]
        assert depth_in_walls(after) < 0.02  # two walls that meet may each push a little into the other
        assert float(after.abs().max()) <= point_maze.ARENA
        left = inside_the_u(before) & ~inside_the_u(after)
        through_wall = left & ((after[:, 0] > 0.5) | ((after[:, 0] > -0.45) & (after[:, 1].abs() > 0.6)))
        assert not bool(through_wall.any())


def test_the_way_left_is_the_shortest_way_on_a_fine_grid():
    """Dijkstra over a grid with sixteen directions, whose ways are at most 3 % too long."""
    goal = torch.tensor([1.1, 0.1])
    cell, radius = 0.05, point_maze.RADIUS
    count = round(2 * point_maze.ARENA / cell) + 1
    axis = np.linspace(-point_maze.ARENA, point_maze.ARENA, count)
    xs, ys = np.meshgrid(axis, axis, indexing="ij")
    free = np.ones((count, count), dtype=bool)
    for x_from, x_to, y_from, y_to in point_maze.WALLS:
        dx, dy = np.maximum(np.maximum(x_from - xs, xs - x_to), 0), np.maximum(np.maximum(y_from - ys, ys - y_to), 0)
        free &= np.hypot(dx, dy) >= radius * 0.7
    moves = [(a, b) for a in range(-2, 3) for b in range(-2, 3) if math.gcd(a, b) == 1]
    best = np.full((count, count), np.inf)
    start = tuple(round((float(v) + point_maze.ARENA) / cell) for v in goal)
    best[start] = 0.0
    queue = [(0.0, start)]
    while queue:
        distance, (i, j) = heapq.heappop(queue)
        if distance > best[i, j]:
            continue
        for a, b in moves:
            k, m = i + a, j + b
            if 0 <= k < count and 0 <= m < count and free[k, m] and free[(i + k) // 2, (j + m) // 2]:
                new = distance + cell * math.hypot(a, b)
                if new < best[k, m]:
                    best[k, m] = new
                    heapq.heappush(queue, (new, (k, m)))
    points = torch.tensor([[0.0, 0.0], [-0.3, 0.3], [0.2, -0.2], [-1.0, 0.0], [0.0, 1.0], [0.9, -0.3], [-0.3, -1.2]])
    ways = point_maze.way_around(points, goal.expand_as(points))
    for point, way in zip(points.tolist(), ways.tolist(), strict=True):
        i, j = (round((v + point_maze.ARENA) / cell) for v in point)
        assert way == pytest.approx(best[i, j], rel=0.07), point


def test_the_way_left_is_finite_wherever_a_disc_can_be():
    simulator = PointMaze(env_seeds(5, 256))
    for action in actions(80, 256, 2, 6).mul(4.0).clamp(-1.0, 1.0):
        simulator.step(action)
        assert bool(torch.isfinite(simulator.fields()["way_left"]).all())


# Training on them


@pytest.mark.slow
def test_distance_alone_gets_stuck_in_the_maze():
    """The reward everybody writes first keeps the disc in the dead end; the expert's leads out in the same time."""
    task = load_task("point_maze")
    straight = (
        "import torch\ndef compute_reward(position, goal_pos):\n"
        "    near = -torch.norm(position - goal_pos, dim=-1)\n    return near, {'near': near}\n"
    )
    expert = task.expert_path.read_text(encoding="utf-8")
    rewards = (RewardSource("straight", straight), RewardSource("expert", expert))
    with Pool("cpu") as pool:
        result = pool.train(TrainingRequest(task, rewards, (0, 1), task.training.env_steps))
    assert max(m.metric or 0.0 for m in result.of("straight")) < 0.1
    assert max(m.metric or 0.0 for m in result.of("expert")) > task.threshold
