"""What every bundled task's simulator owes to the trainer, whatever its dynamics."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from sandboxes.base import Simulator
from sandboxes.torch_sim.rng import env_seeds
from sandboxes.trainer.trusted import make_simulator
from synth.task import Task, discover_tasks, load_task

TASKS = {name: load_task(name) for name in discover_tasks()}
CPU = torch.device("cpu")

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def is_continuous(task: Task) -> bool:
    return not make_simulator(task, torch.arange(1), CPU).action_spec.discrete


CONTINUOUS = {name: task for name, task in TASKS.items() if is_continuous(task)}


def build(task: Task, seeds: Tensor | int) -> Simulator:
    return make_simulator(task, env_seeds(3, seeds) if isinstance(seeds, int) else seeds, CPU)


def actions(simulator: Simulator, steps: int, seed: int = 0) -> Iterator[Tensor]:
    """Random actions, each kept for a few steps so that they move things; the same for each environment's index."""
    generator, spec = torch.Generator().manual_seed(seed), simulator.action_spec
    action = torch.zeros(0)
    for step in range(steps):
        if step % 8 == 0:
            if spec.discrete:
                action = torch.randint(spec.size, (simulator.num_envs,), generator=generator)
            else:  # a third of them beyond the limits, which a simulator has to clip
                action = torch.rand(simulator.num_envs, spec.size, generator=generator) * 3.0 - 1.5
        yield action


def snapshot(simulator: Simulator) -> dict[str, Tensor]:
    """Copies of everything that can be seen from outside."""
    seen = {name: value.clone() for name, value in simulator.fields().items()}
    return {**seen, "observation": simulator.observation().clone()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], rows: Tensor | slice = slice(None)) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value[rows], other[name][rows]), name


@every_task
def test_fields_have_the_shapes_and_types_the_task_promises(task: Task):
    simulator = build(task, 5)
    assert simulator.num_envs == 5
    for action in actions(simulator, 3):
        simulator.step(action)
        offered = simulator.fields()
        assert "action" not in offered
        for field in task.fields:
            if field.name != "action":
                assert tuple(offered[field.name].shape) == (5, *field.shape), field.name
                assert offered[field.name].dtype == getattr(torch, field.dtype), field.name
        assert simulator.observation().shape == (5, simulator.observation_size)
        assert simulator.observation().dtype == torch.float32
    assert task.field_named("action").shape == (simulator.action_spec.size,)


@every_task
def test_random_behaviour_stays_within_the_ranges_told_to_the_coder(task: Task):
    """The ranges are told to language models: values outside by more than half of the range would mislead them."""
    simulator = build(task, 64)
    for action in actions(simulator, simulator.episode_steps):
        terminated, truncated = simulator.step(action)
        offered = simulator.fields()
        assert bool(torch.isfinite(simulator.observation()).all())
        for field in task.fields:
            if field.name == "action":
                continue
            value = offered[field.name].float()
            assert bool(torch.isfinite(value).all()), field.name
            if field.low is not None and field.high is not None:
                slack = 0.5 * (field.high - field.low)
                assert field.low - slack <= float(value.min()), field.name
                assert float(value.max()) <= field.high + slack, field.name
        simulator.reset(terminated | truncated)


@every_task
def test_reset_touches_only_the_masked_environments(task: Task):
    simulator = build(task, 8)
    for action in actions(simulator, 10):
        simulator.step(action)
    before = snapshot(simulator)
    mask = torch.tensor([True, False, False, True, False, True, False, False])
    simulator.reset(mask)
    after = snapshot(simulator)
    assert_same(before, after, ~mask)
    assert not torch.equal(before["observation"][mask], after["observation"][mask])
    simulator.reset(torch.zeros(8, dtype=torch.bool))
    assert_same(after, snapshot(simulator))


@every_task
def test_a_batch_equals_single_environments_bit_for_bit(task: Task):
    """Through ends of episodes and resets, so that each environment's random numbers are its own, too."""
    seeds = env_seeds(11, 6)
    together, alone = build(task, seeds), [build(task, seeds[index : index + 1]) for index in range(6)]
    for step, action in enumerate(actions(together, min(together.episode_steps, 150))):
        ended = torch.stack(together.step(action))
        for index, simulator in enumerate(alone):
            own = slice(index, index + 1)
            assert torch.equal(torch.stack(simulator.step(action[own])), ended[:, own])
        mask = ended.any(dim=0) | (torch.arange(6) == step % 31)  # some resets even where no episode ends early
        together.reset(mask)
        for index, simulator in enumerate(alone):
            simulator.reset(mask[index : index + 1])
        seen = snapshot(together)
        for index, simulator in enumerate(alone):
            assert_same(snapshot(simulator), {name: value[index : index + 1] for name, value in seen.items()})


@every_task
def test_seeds_decide_the_episodes(task: Task):
    seeds = env_seeds(4, 3)
    first, second, other = build(task, seeds), build(task, seeds), build(task, env_seeds(5, 3))
    assert not torch.equal(first.observation(), other.observation())
    for action in actions(first, 40):
        first.step(action)
        second.step(action)
        assert_same(snapshot(first), snapshot(second))


@every_task
def test_a_new_episode_differs_from_the_last(task: Task):
    simulator = build(task, 4)
    starts = []
    for _ in range(5):
        starts.append(simulator.observation().clone())
        simulator.reset()
    distinct = torch.unique(torch.stack(starts).flatten(0, 1), dim=0)
    assert len(distinct) == 20


@every_task
def test_truncation_comes_exactly_at_the_episodes_last_step(task: Task):
    """Also when environments are reset at different times; an episode that terminates is not truncated."""
    simulator = build(task, 4)
    age = torch.zeros(4, dtype=torch.int64)
    for step, action in enumerate(actions(simulator, 2 * simulator.episode_steps + 5)):
        terminated, truncated = simulator.step(action)
        age = age + 1
        assert terminated.shape == truncated.shape == (4,)
        assert terminated.dtype == truncated.dtype == torch.bool
        assert torch.equal(truncated, (age == simulator.episode_steps) & ~terminated)
        mask = terminated | truncated
        mask[1] |= step == 13
        simulator.reset(mask)
        age = torch.where(mask, 0, age)


@pytest.mark.parametrize("task", CONTINUOUS.values(), ids=CONTINUOUS)
def test_actions_beyond_their_limits_are_clipped(task: Task):
    simulator, clipped = build(task, 16), build(task, 16)
    for action in actions(simulator, 20, seed=9):
        assert float(action.abs().max()) > 1.0
        simulator.step(action)
        clipped.step(action.clamp(-1.0, 1.0))
    assert_same(snapshot(simulator), snapshot(clipped))


@every_task
def test_what_was_read_is_not_changed_by_the_next_step(task: Task):
    """Recorded fields are kept without copying: a simulator may not write into tensors it has given away."""
    simulator = build(task, 4)
    for action in actions(simulator, 3):
        given = {**simulator.fields(), "observation": simulator.observation()}
        kept = {name: value.clone() for name, value in given.items()}
        terminated, _ = simulator.step(action)
        simulator.reset(terminated | torch.tensor([True, False, False, True]))
        assert_same(given, kept)
