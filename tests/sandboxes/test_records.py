"""What is recorded, measured and dealt out around the training: fields, episodes, statistics, plans, random numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.pool import split_members
from sandboxes.torch_sim.rng import env_seeds, mix64, uniform
from sandboxes.trainer.evaluate import score_episodes
from sandboxes.trainer.fields import FieldRecorder, arguments
from sandboxes.trainer.population import Schedule
from sandboxes.trainer.statistics import MemberStatistics


class Counting:
    """Three environments, each counting its own steps from a start that says environment and episode."""

    def __init__(self, discrete: bool = False) -> None:
        self.num_envs, self.device, self.dt, self.episode_steps, self.observation_size = (
            3,
            torch.device("cpu"),
            0.5,
            9,
            1,
        )
        self.action_spec = ActionSpec(2, discrete)
        self.episode = torch.zeros(3)
        self.value = torch.arange(3) * 1000.0

    def reset(self, mask: Tensor | None = None) -> None:
        mask = torch.ones(3, dtype=torch.bool) if mask is None else mask
        self.episode = self.episode + mask
        self.value = torch.where(mask, torch.arange(3) * 1000.0 + self.episode * 100.0, self.value)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        self.value = self.value + 1.0
        return torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)

    def fields(self) -> dict[str, Tensor]:
        return {
            "value": self.value,
            "pair": torch.stack([self.value, -self.value], dim=-1),
            "prev_like": self.value * 2.0,
        }

    def observation(self) -> Tensor:
        return self.value.unsqueeze(-1)


NAMES = (
    "value",
    "prev_value",
    "initial_value",
    "prev_pair",
    "time",
    "action",
    "prev_action",
    "initial_action",
    "prev_like",
)


def record(simulator: Counting, resets: dict[int, list[bool]], steps: int = 5) -> dict[str, Tensor]:
    recorder = FieldRecorder(simulator, NAMES)
    recorder.start()
    recorder.begin_rollout()
    for step in range(steps):
        action = torch.full((3, 2), 0.1 * (step + 1))
        simulator.step(action)
        recorder.after_step(action)
        if step in resets:
            mask = torch.tensor(resets[step])
            simulator.reset(mask)
            recorder.after_reset(mask)
    return recorder.end_rollout()


def test_fields_of_one_episode():
    seen = record(Counting(), {})
    assert seen["value"][:, 0].tolist() == [1, 2, 3, 4, 5]
    assert seen["prev_value"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert seen["initial_value"][:, 1].tolist() == [1000] * 5
    assert seen["time"][:, 2].tolist() == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert seen["prev_pair"][1].tolist() == [[1, -1], [1001, -1001], [2001, -2001]]
    torch.testing.assert_close(seen["action"][:, 0, 0], torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5]))
    torch.testing.assert_close(seen["prev_action"][:, 0, 0], torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4]))
    assert not seen["initial_action"].any()


def test_a_field_that_begins_like_a_prefix_is_itself():
    assert record(Counting(), {})["prev_like"][:, 0].tolist() == [2, 4, 6, 8, 10]


def test_after_a_reset_nothing_of_the_old_episode_is_left():
    """Environment 1 is reset after the second step; the last state of its episode was recorded before that."""
    seen = record(Counting(), {1: [False, True, False]})
    assert seen["value"][:, 1].tolist() == [1001, 1002, 1101, 1102, 1103]
    assert seen["prev_value"][:, 1].tolist() == [1000, 1001, 1100, 1101, 1102]
    assert seen["initial_value"][:, 1].tolist() == [1000, 1000, 1100, 1100, 1100]
    assert seen["time"][:, 1].tolist() == [0.5, 1.0, 0.5, 1.0, 1.5]
    torch.testing.assert_close(seen["prev_action"][:, 1, 0], torch.tensor([0.0, 0.1, 0.0, 0.3, 0.4]))
    assert seen["value"][:, 0].tolist() == [1, 2, 3, 4, 5]
    assert seen["time"][-1, [0, 2]].tolist() == [2.5, 2.5]


def test_a_second_rollout_goes_on_with_the_same_episodes():
    simulator = Counting()
    recorder = FieldRecorder(simulator, ("prev_value", "time"))
    recorder.start()
    for _ in range(2):
        recorder.begin_rollout()
        for _ in range(2):
            simulator.step(torch.zeros(3, 2))
            recorder.after_step(torch.zeros(3, 2))
        seen = recorder.end_rollout()
    assert seen["prev_value"][:, 0].tolist() == [2, 3]
    assert seen["time"][:, 0].tolist() == [1.5, 2.0]


def test_discrete_actions_become_one_hot_and_continuous_ones_are_clipped():
    for simulator, action, expected in (
        (Counting(discrete=True), torch.tensor([1, 0, 1]), [[0, 1], [1, 0], [0, 1]]),
        (Counting(), torch.tensor([[3.0, -3.0]] * 3), [[1, -1]] * 3),
    ):
        recorder = FieldRecorder(simulator, ("action",))
        recorder.start()
        recorder.begin_rollout()
        recorder.after_step(action)
        assert recorder.end_rollout()["action"][0].tolist() == expected


def test_arguments_lists_parameters_only():
    def function(one: int, two: int, *, three: int) -> int:
        local = one
        return local + two + three

    assert arguments(function) == ("one", "two", "three")


# --- scores of whole episodes


def test_after_an_early_end_the_last_state_is_held():
    value = torch.arange(12.0).view(4, 3)  # (T, B): columns 0, 3, 6, 9; 1, 4, 7, 10; 2, 5, 8, 11
    vector = torch.stack([value, -value], dim=-1)
    valid = torch.tensor([[True, True, True], [True, False, True], [True, False, False], [True, False, False]])
    seen = {}

    def compute(value: Tensor, vector: Tensor, valid: Tensor) -> Tensor:
        seen.update(value=value, vector=vector, valid=valid)
        return value[-1]

    metric, length = score_episodes(compute, {"value": value, "vector": vector}, valid, (3, 1))
    assert seen["value"].T.tolist() == [[0, 3, 6, 9], [1, 1, 1, 1], [2, 5, 5, 5]]
    assert torch.equal(seen["vector"], torch.stack([seen["value"], -seen["value"]], dim=-1))
    assert torch.equal(seen["valid"], valid)
    assert metric.tolist() == [9, 1, 5]
    assert length.tolist() == [4, 1, 2]


def test_scores_are_means_over_each_members_own_episodes():
    value = torch.tensor([[0.0, 1.0, 0.5, 0.5, 1.0, 1.0]])
    metric, length = score_episodes(
        lambda value: value[-1], {"value": value}, torch.ones(1, 6, dtype=torch.bool), (3, 2)
    )
    assert metric.tolist() == [0.5, 0.5, 1.0]
    assert length.tolist() == [1, 1, 1]


def test_a_metric_of_the_wrong_shape_is_refused():
    ones = torch.ones(2, 4)
    with pytest.raises(ValueError, match="shape"):
        score_episodes(lambda value: value.mean(), {"value": ones}, ones.bool(), (2, 2))


# --- statistics


@given(st.integers(0, 1000), st.lists(st.integers(1, 40), min_size=1, max_size=5))
@settings(deadline=None, max_examples=30)
def test_component_statistics_equal_numpy(seed: int, sizes: list[int]):
    rng = np.random.default_rng(seed)
    parts = [
        (rng.normal(size=(3, n)) * [[1.0], [100.0], [0.0]] + [[2.0], [0.0], [0.0]]).astype(np.float32) for n in sizes
    ]
    statistics = MemberStatistics()
    for part in parts:
        statistics.add(torch.tensor(part.sum(axis=0)), ("a", "b", "c"), torch.tensor(part))
    reward, components = statistics.take()
    everything = np.concatenate(parts, axis=1).astype(np.float64)
    assert reward == pytest.approx(everything.sum(axis=0).mean(), rel=1e-4, abs=1e-4)
    sizes_of_parts = np.abs(everything).mean(axis=1)
    for index, name in enumerate("abc"):
        row, found = everything[index], components[name]
        assert found.mean == pytest.approx(row.mean(), rel=1e-4, abs=1e-4)
        assert found.std == pytest.approx(row.std(), rel=1e-4, abs=1e-4)
        assert (found.min, found.max) == (row.min(), row.max())
        assert found.share == pytest.approx(sizes_of_parts[index] / sizes_of_parts.sum(), rel=1e-4)


def test_statistics_start_afresh_after_each_checkpoint():
    statistics = MemberStatistics()
    statistics.add(torch.full((4,), 100.0), ("a",), torch.full((1, 4), 100.0))
    statistics.take()
    statistics.add(torch.full((2,), 1.0), ("a",), torch.full((1, 2), 1.0))
    reward, components = statistics.take()
    assert reward == 1.0
    assert (components["a"].mean, components["a"].std, components["a"].min, components["a"].max) == (1.0, 0.0, 1.0, 1.0)


def test_statistics_of_huge_rewards_stay_finite():
    """They travel as JSON, which has no infinity."""
    statistics = MemberStatistics()
    statistics.add(torch.full((1000,), 3e38), ("a",), torch.full((1, 1000), -3e38))
    reward, components = statistics.take()
    assert reward == pytest.approx(3e38, rel=1e-6)
    assert components["a"].mean == pytest.approx(-3e38, rel=1e-6)
    assert math.isfinite(components["a"].std)


# --- schedules and plans


@given(st.integers(1, 300_000), st.integers(1, 128), st.integers(1, 64), st.integers(1, 20))
@settings(max_examples=200)
def test_schedules_cover_the_steps_and_end_with_a_checkpoint(env_steps: int, num_envs: int, horizon: int, wanted: int):
    schedule = Schedule.of(env_steps, num_envs, horizon, wanted)
    steps = schedule.iterations * num_envs * horizon
    assert env_steps <= steps < env_steps + num_envs * horizon
    points = schedule.checkpoints
    assert points[-1] == schedule.iterations
    assert list(points) == sorted(set(points))
    assert len(points) == min(wanted, schedule.iterations)
    gaps = np.diff([0, *points])
    assert gaps.max() - gaps.min() <= 1


@given(st.integers(1, 20), st.integers(1, 8), st.integers(1, 16))
def test_every_member_goes_to_exactly_one_shard_and_shards_are_balanced(rewards: int, seeds: int, shards: int):
    plan = split_members(rewards, seeds, shards)
    assert len(plan) == shards
    dealt = [
        [(reward, seed) for reward, (first, last) in enumerate(counts) for seed in range(first, last)]
        for counts in plan
    ]
    assert [member for part in dealt for member in part] == [(r, s) for r in range(rewards) for s in range(seeds)]
    sizes = [len(part) for part in dealt]
    assert max(sizes) - min(sizes) <= 1


# --- counter-based random numbers


def test_mixer_is_splitmix64():
    """The first outputs of the reference implementation for seed 0: its state grows by the golden ratio."""
    golden = 0x9E3779B97F4A7C15
    states = [(golden * k) % 2**64 for k in range(3)]
    signed = torch.tensor([s - 2**64 if s >= 2**63 else s for s in states])
    found = [value % 2**64 for value in mix64(signed).tolist()]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_draws_are_uniform():
    draws = uniform(env_seeds(0, 500), torch.zeros(500, dtype=torch.int64), 200).flatten()
    assert float(draws.min()) >= 0.0
    assert float(draws.max()) < 1.0
    observed = np.histogram(draws.numpy(), bins=100, range=(0.0, 1.0))[0]
    chi_square = float(((observed - 1000.0) ** 2 / 1000.0).sum())
    assert 50.0 < chi_square < 160.0  # 99 degrees of freedom: outside only once in 10^4


@pytest.mark.parametrize("along", ["lane", "environment", "episode"])
def test_neighbouring_draws_are_uncorrelated(along: str):
    if along == "lane":
        draws = uniform(env_seeds(0, 300), torch.zeros(300, dtype=torch.int64), 300).T
    elif along == "environment":
        draws = uniform(env_seeds(0, 300), torch.zeros(300, dtype=torch.int64), 300)
    else:
        draws = torch.stack([uniform(env_seeds(0, 300), torch.full((300,), k), 1)[:, 0] for k in range(300)])
    centred = (draws - 0.5).double()
    correlation = float((centred[1:] * centred[:-1]).mean()) * 12.0
    assert abs(correlation) < 4.0 / math.sqrt(299 * 300)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9), st.integers(0, 1000))
def test_a_draw_depends_on_seed_and_counter_alone(seeds: list[int], episode: int):
    together = uniform(torch.tensor(seeds), torch.full((len(seeds),), episode), 3)
    for index, seed in enumerate(seeds):
        assert torch.equal(uniform(torch.tensor([seed]), torch.tensor([episode]), 3)[0], together[index])


def test_environments_of_different_members_and_streams_have_different_seeds():
    found = torch.cat([env_seeds(member, 64, stream) for member in range(50) for stream in range(3)])
    assert len(torch.unique(found)) == 50 * 3 * 64
    assert torch.equal(env_seeds(7, 64)[:16], env_seeds(7, 16))
