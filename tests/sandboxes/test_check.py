"""The quick check of rewards on recorded states: what is wrong, in words that can be acted on."""

from collections.abc import Iterator

import pytest

from sandboxes.base import CheckReport, Failure
from sandboxes.pool import Pool
from synth.task import discover_tasks, load_task

TASK = load_task("pendulum_swingup")
REACHER = load_task("reacher")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(device="cpu", shards=1) as pool:
        yield pool


def pendulum(pool: Pool, *bodies: str) -> list[CheckReport]:
    """Check rewards of the pendulum with these bodies (one to a string, lines separated by `;`)."""
    head = "import torch\n\n\ndef compute_reward(angle, angular_velocity, action):\n"  # the body starts at line 5
    return pool.check(TASK, [head + "".join(f"    {x.strip()}\n" for x in body.split(";")) for body in bodies])


BAD = {
    "wrong shape": ("return action, {}", Failure.SHAPE, "the reward has shape (N, 1), not (N,)", None),
    "a scalar": ("return -angle.abs().mean(), {}", Failure.SHAPE, "the reward has shape (), not (N,)", None),
    "component's shape": (
        "return angle, {'effort': action}",
        Failure.SHAPE,
        "component 'effort' has shape (N, 1)",
        None,
    ),
    "plain number": ("return angle, {'a': 1.0}", Failure.DTYPE, "component 'a' is a plain number (1.0)", None),
    "boolean": ("return angle > 0.0, {}", Failure.DTYPE, "convert it with .float()", None),
    "integer": ("return angle.long(), {}", Failure.DTYPE, "the reward has dtype torch.int64", None),
    "NaN": ("r = torch.sqrt(angle); return r, {'root': r}", Failure.NON_FINITE, "component 'root' is NaN", None),
    "infinite": (
        "r = torch.exp(100.0 * angle); return r, {}",
        Failure.NON_FINITE,
        "the reward is NaN or infinite",
        None,
    ),
    "huge": ("r = torch.exp(10.0 * angle); return r, {}", Failure.NON_FINITE, "larger than 1e+12", None),
    "returns nothing": ("angle + 1.0", Failure.RETURN, "returns nothing", 4),
    "not a dict": ("return angle, [angle]", Failure.RETURN, "must return (reward, components dict)", None),
    "raises": (
        "x = angle; y = torch.stack([x, action]); return y, {}",
        Failure.RAISED,
        "RuntimeError: stack expects",
        6,
    ),
    "divides by zero": ("x = 1 / (2 - 2); return angle * x, {}", Failure.RAISED, "ZeroDivisionError", 5),
    "endless recursion": ("return more(angle), {}", Failure.FORBIDDEN, "`more` is not defined", 5),
    "depends on the batch": (
        "r = angle - angle.mean(); return r, {'r': r}",
        Failure.SHAPE,
        "the reward of a state changes with the other states of the batch",
        None,
    ),
    "lost dimension": (
        "r = action.squeeze(); return r, {'r': r}",
        Failure.SHAPE,
        "for N = 1: component 'r' has shape ()",
        None,
    ),
    "too much memory": (
        "wide = angle.unsqueeze(-1).repeat(1, 260000); return wide.sum(dim=-1), {}",
        Failure.RAISED,
        "can't allocate memory",
        5,
    ),
    "unknown field": ("return angel, {}", Failure.FORBIDDEN, "angel", 5),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rewards_are_told_apart(name: str, pool: Pool):
    body, kind, words, line = BAD[name]
    (report,) = pendulum(pool, body)
    assert not report.ok
    (problem, *_) = report.problems
    assert problem.kind is kind, problem
    assert words in problem.message, problem
    assert problem.line == line, problem
    assert report.fingerprint is None


def test_unknown_fields_are_named_with_near_ones(pool: Pool):
    (report,) = pool.check(TASK, ["def compute_reward(angle, velocity):\n    return angle, {}\n"])
    assert report.problems[0].kind is Failure.UNKNOWN_FIELD
    assert "angular_velocity" in report.problems[0].message


@pytest.mark.slow
def test_an_endless_reward_runs_into_its_deadline(pool: Pool):
    head = "def compute_reward(angle):\n"
    loop = "    for i in range(100000):\n        for j in range(100000):\n            angle = angle * 1.0\n"
    end = "    return angle, {'a': angle}\n"
    hanging, good = pool.check(TASK, [head + loop + end, head + end])
    assert hanging.problems[0].kind is Failure.TIMEOUT
    assert "no answer within 10 s" in hanging.problems[0].message
    assert good.ok


def test_reports_come_in_the_order_of_the_sources(pool: Pool):
    with Pool(device="cpu", shards=3) as several:
        bodies = ["return angle, {'a': angle}", "return action, {}", "return angle, {'b': angle}", "return 1.0, {}"]
        found = pendulum(several, *bodies)
        assert [r.components for r in found] == [("a",), (), ("b",), ()]
        assert [r.ok for r in found] == [True, False, True, False]
        assert several.check(TASK, []) == []


def test_components_that_do_not_sum_to_the_reward_are_a_warning(pool: Pool):
    wrong, none, right = pendulum(
        pool,
        "return angle + 0.5, {'a': angle}",
        "return angle, {}",
        "b = 1000.0 * angular_velocity; return angle + b - b, {'a': angle, 'b': b, 'c': -b}",
    )
    assert wrong.ok
    assert none.ok
    assert wrong.warnings == ("the components do not sum to the reward (largest difference 0.5)",)
    assert "no components" in none.warnings[0]
    assert right.warnings == ()


@pytest.mark.parametrize("name", discover_tasks())
def test_the_experts_reward_is_sound_and_scriptable(name: str, pool: Pool):
    task = load_task(name)
    (report,) = pool.check(task, [task.expert_path.read_text(encoding="utf-8")])
    assert report.problems == ()
    assert report.warnings == ()
    assert report.scriptable
    assert report.components


def test_code_outside_torchscript_is_sound_but_not_scriptable(pool: Pool):
    (report,) = pendulum(pool, "parts = {k: angle for k in ('a', 'b')}; return sum(parts.values()), parts")
    assert report.problems == ()
    assert not report.scriptable
    assert report.components == ("a", "b")


def test_fingerprints_are_equal_for_rewards_that_say_the_same(pool: Pool):
    same = pendulum(
        pool,
        "r = torch.cos(angle) - 0.1 * angular_velocity ** 2 - 0.01 * action[:, 0]; return r, {'r': r}",
        "v = torch.square(angular_velocity); x = torch.cos(angle); return x - v / 10.0 - 0.01 * action.sum(dim=-1), {}",
        "a = -0.01 * action[:, 0] + torch.cos(angle); b = a - 0.1 * angular_velocity.abs() ** 2; return b, {'a': b}",
    )
    assert all(r.ok for r in same), same
    assert len({r.fingerprint for r in same}) == 1


def test_fingerprints_differ_for_rewards_that_differ(pool: Pool):
    bodies = [
        "return angle, {}",
        "return -angle, {}",
        "return 1.001 * angle, {}",
        "return angle + 0.01, {}",
        "return angle * 0.0, {}",
        "return angle + (angle.abs() > 3.1).float(), {}",
        "return angle + 0.001 * angular_velocity, {}",
        "return torch.ones_like(angle), {}",
    ]
    reports = pendulum(pool, *bodies)
    assert all(r.ok for r in reports)
    assert len({r.fingerprint for r in reports}) == len(bodies)


def test_prefixed_fields_and_time_reach_the_reward(pool: Pool):
    """Values are checked through the fingerprint: on recorded states these are two ways to say the same."""
    head = "import torch\n\n\n"
    step = "def compute_reward(angular_velocity, prev_angular_velocity, time, initial_action):\n"
    found = pool.check(
        TASK,
        [
            head + step + "    r = angular_velocity - prev_angular_velocity + initial_action[:, 0]\n    return r, {}\n",
            head
            + step
            + "    r = (angular_velocity - prev_angular_velocity) * (time > 0.0).float()\n    return r, {}\n",
            head
            + step
            + "    r = (angular_velocity - prev_angular_velocity) * (time > 0.05).float()\n    return r, {}\n",
        ],
    )
    assert all(r.ok for r in found)
    assert found[0].fingerprint == found[1].fingerprint != found[2].fingerprint


def test_vectors_reach_the_reward_with_their_shape(pool: Pool):
    source = (
        "import torch\n\n\ndef compute_reward(fingertip_pos, goal_pos, prev_fingertip_pos):\n"
        "    before = torch.norm(prev_fingertip_pos - goal_pos, dim=-1)\n"
        "    closer = before - torch.norm(fingertip_pos - goal_pos, dim=-1)\n"
        "    return closer, {'closer': closer}\n"
    )
    (report,) = pool.check(REACHER, [source])
    assert report.ok
