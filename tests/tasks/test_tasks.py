"""The bundled tasks: metrics on hand-made episodes, experts, and texts that a language model is shown."""

import ast
import re

import pytest
import torch
from torch import Tensor

from sandboxes.trainer.fields import arguments
from sandboxes.trainer.trusted import load_metric, make_simulator
from synth.task import PREFIXES, Task, discover_tasks, load_task, resolve_parameter

TASKS = {name: load_task(name) for name in discover_tasks()}
METRICS = {name: load_metric(task) for name, task in TASKS.items()}
FIRST = {
    "acrobot_swingup",
    "cartpole_balance",
    "cartpole_shuttle",
    "cartpole_swingup",
    "mountain_car",
    "pendulum_spin",
    "pendulum_swingup",
    "reacher",
}

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def columns(*episodes: list[float]) -> Tensor:
    """Episodes as the columns of (T, B)."""
    return torch.tensor(episodes, dtype=torch.float32).T


def valid(*lengths: int, steps: int) -> Tensor:
    """(T, B) bool, true for each episode's first steps."""
    return torch.arange(steps).unsqueeze(-1) < torch.tensor(lengths)


def score(name: str, **fields: Tensor) -> list[float]:
    return [round(float(value), 4) for value in METRICS[name].compute(**fields)]


# --- metrics on episodes whose score is known


def test_all_tasks_of_the_first_set_are_there():
    assert FIRST - TASKS.keys() == set()


def test_pendulum_swingup_counts_steps_upright_and_slow():
    angle = columns([0.0, 0.19, -0.19, 0.0], [0.21, -0.21, 3.1, 0.0], [0.0, 0.0, 0.0, 0.0])
    speed = columns([0.0, 0.9, -0.9, 1.1], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0])
    assert score("pendulum_swingup", angle=angle, angular_velocity=speed) == [0.75, 0.25, 1.0]


def test_pendulum_spin_counts_steps_at_the_wanted_speed_and_direction():
    speed = columns([6.0, 5.1, 6.9, 7.1], [-6.0, -6.0, 4.9, 0.0])
    assert score("pendulum_spin", angular_velocity=speed) == [0.75, 0.0]


def test_cartpole_balance_counts_steady_steps_and_none_after_a_fall():
    position = columns([0.0, 0.9, -0.9, 1.1], [0.0, 0.0, 0.0, 0.0])
    angle = columns([0.0, 0.1, -0.1, 0.0], [0.0, 0.0, 0.0, 0.0])
    found = score("cartpole_balance", cart_position=position, pole_angle=angle, valid=valid(4, 2, steps=4))
    assert found == [0.75, 0.5]
    found = score("cartpole_balance", cart_position=position * 0, pole_angle=angle + 0.11, valid=valid(4, 4, steps=4))
    assert found == [0.25, 0.0]


def test_cartpole_swingup_counts_steps_upright_slow_and_near_the_middle():
    zero = columns([0.0] * 4, [0.0] * 4, [0.0] * 4, [0.0] * 4)
    angle, speed, position = zero.clone(), zero.clone(), zero.clone()
    angle[0, 0], angle[1, 0] = 3.1, 0.26
    speed[2, 1] = -2.1
    position[3, 2] = -1.1
    every = valid(4, 4, 4, 3, steps=4)
    found = score("cartpole_swingup", cart_position=position, pole_angle=angle, pole_velocity=speed, valid=every)
    assert found == [0.5, 0.75, 0.75, 0.75]


def test_cartpole_shuttle_counts_the_second_half_at_the_target():
    target = columns([1.0] * 4, [-1.0] * 4, [0.5] * 4)
    position = columns([0.0, 0.5, 0.9, 1.1], [0.0, -1.0, -1.2, -1.0], [0.5, 0.5, 0.5, 0.5])
    angle = columns([0.0] * 4, [0.0] * 4, [0.0, 0.0, 0.3, 0.1])
    settings = {"cart_position": position, "target_position": target, "pole_angle": angle}
    assert score("cartpole_shuttle", **settings, valid=valid(4, 4, 4, steps=4)) == [1.0, 0.5, 0.5]
    assert score("cartpole_shuttle", **settings, valid=valid(3, 4, 2, steps=4)) == [0.5, 0.5, 0.0]


def test_mountain_car_is_one_at_the_flag_and_half_the_height_before():
    valley = -torch.pi / 6.0
    position = columns([valley, 0.0, 0.46], [valley, valley, valley], [valley, 0.44, 0.0], [-1.2, valley, valley])
    flag, floor, near, left = score("mountain_car", position=position)
    assert flag == 1.0
    assert floor == 0.0
    assert left == 0.0  # the left-hand hill counts for nothing
    assert 0.48 < near < 0.5


def test_acrobot_is_rated_by_the_time_spared_once_up_and_by_height_before():
    height = columns([-2.0, 0.0, 1.1, 1.1], [-2.0, -2.0, -2.0, 1.1], [-2.0, -0.5, -1.0, -2.0], [-2.0, -2.0, -2.0, -2.0])
    found = score("acrobot_swingup", tip_height=height, valid=valid(3, 4, 4, 4, steps=4))
    assert found == [0.625, 0.5, 0.25, 0.0]


def test_reacher_counts_the_second_half_at_the_goal():
    goal = torch.tensor([0.3, 0.4]).expand(4, 2, 2)
    tip = goal.clone()
    tip[2, 0, 0] += 0.06
    tip[3, 1] += torch.tensor([0.03, 0.03])
    tip[:2] += 1.0
    assert score("reacher", fingertip_pos=tip, goal_pos=goal) == [0.5, 1.0]


# --- every task, those of later sets included


def random_fields(task: Task, names: tuple[str, ...], shape: tuple[int, ...], seed: int) -> dict[str, Tensor]:
    """Values all over the fields' ranges, and beyond."""
    generator, found = torch.Generator().manual_seed(seed), {}
    for name in names:
        if name == "valid":
            lengths = torch.randint(1, shape[0] + 1, shape[1:], generator=generator)
            found[name] = torch.arange(shape[0]).unsqueeze(-1) < lengths
            continue
        item = resolve_parameter(task, name).field
        low, high = (-1.0, 1.0) if item.low is None or item.high is None else (item.low, item.high)
        draws = torch.rand(*shape, *item.shape, generator=generator) * 1.2 - 0.1
        found[name] = draws > 0.5 if item.dtype == "bool" else low + (high - low) * draws
    return found


@every_task
def test_metrics_of_any_episode_lie_between_zero_and_one(task: Task):
    metric = METRICS[task.name]
    for seed in range(5):
        found = metric.compute(**random_fields(task, arguments(metric.compute), (40, 30), seed))
        assert found.shape == (30,)
        assert found.dtype == torch.float32
        assert float(found.min()) >= 0.0
        assert float(found.max()) <= 1.0


@every_task
def test_a_metric_rates_each_episode_on_its_own(task: Task):
    compute = METRICS[task.name].compute
    fields = random_fields(task, arguments(compute), (40, 6), 1)
    together = compute(**fields)
    for index in range(6):
        alone = compute(**{name: value[:, index : index + 1] for name, value in fields.items()})
        torch.testing.assert_close(alone[0], together[index])


@every_task
def test_the_sparse_reward_is_a_reward_of_this_task(task: Task):
    sparse = METRICS[task.name].sparse
    found = sparse(**random_fields(task, arguments(sparse), (500,), 1))
    assert found.shape == (500,)
    assert set(found.unique().tolist()) <= {0.0, 1.0}


@every_task
def test_the_experts_reward_fits_the_task(task: Task):
    """Components of the right shape that sum to the reward; the pool's tests run it as a candidate, too."""
    namespace: dict = {}
    exec(task.expert_path.read_text(encoding="utf-8"), namespace)
    function = namespace["compute_reward"]
    reward, components = function(**random_fields(task, arguments(function), (200,), 2))
    assert reward.shape == (200,)
    assert reward.dtype == torch.float32
    assert all(part.shape == (200,) for part in components.values())
    torch.testing.assert_close(sum(components.values()), reward, rtol=1e-4, atol=1e-4)


@every_task
def test_training_settings_fit_together(task: Task):
    """At least ten rollouts, so that there are ten checkpoints; sizes whose members do not share a cache line."""
    settings = task.training
    assert settings.env_steps >= 10 * settings.num_envs * settings.rollout_steps
    assert settings.num_envs * settings.rollout_steps % settings.minibatches == 0
    assert settings.num_envs % 32 == 0
    assert all(width % 16 == 0 for width in settings.hidden)
    assert 0.0 < task.threshold < 1.0


@every_task
def test_every_field_of_the_simulator_a_reward_needs_is_told(task: Task):
    """What the metric reads is a field or hidden in the simulator; what is told has unit and meaning."""
    offered = {*make_simulator(task, torch.arange(2), torch.device("cpu")).fields(), "action", "valid", "time"}
    for name in arguments(METRICS[task.name].compute):
        bases = [name, *(name.removeprefix(p) for p in PREFIXES)]
        assert any(base in offered for base in bases), name
    for item in task.fields:
        assert item.unit
        assert len(item.meaning) >= 10, item.name
        assert item.meaning[0].islower() or item.meaning.split()[0].isupper(), item.name
        if item.low is not None and item.high is not None:
            assert item.low < item.high, item.name
    action = task.field_named("action")
    assert (action.low, action.high) in {(-1.0, 1.0), (0.0, 1.0)}


@every_task
def test_the_text_describes_a_task_and_gives_no_code(task: Task):
    """Nor the hidden metric's thresholds in the form of an expression, nor names that only the code knows."""
    text = task.description
    assert 80 <= len(text) <= 800
    assert text[0].isupper()
    assert text.endswith(".")
    assert not re.search(r"[`={}\[\]<>*_#]|\bdef\b|\breturn\b|\bimport\b|torch|metric|compute_", text)
    assert not re.search(r"\breward\b", text), "the reward is what is asked for"
    for item in task.fields:
        assert not re.search(r"[`={}<>*#]|torch|metric", item.meaning), item.name


@every_task
def test_the_metric_is_documented_and_free_of_side_effects(task: Task):
    tree = ast.parse(task.metric_path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)])
        if isinstance(node, ast.Import | ast.ImportFrom) and name
    }
    assert imported <= {"torch", "math", "__future__", "typing"}
