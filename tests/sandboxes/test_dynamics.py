"""The simulators that copy Gymnasium's classic control tasks, held against Gymnasium itself."""

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from sandboxes.torch_sim.acrobot import Acrobot
from sandboxes.torch_sim.base import TorchSimulator
from sandboxes.torch_sim.cartpole import CartPole
from sandboxes.torch_sim.mountain_car import MountainCar
from sandboxes.torch_sim.pendulum import Pendulum
from sandboxes.torch_sim.reacher import INERTIA, LENGTH, MASS, Reacher, mass_matrix

STATES = 500
FREE_STEPS = 50
SEEDS = torch.arange(1)


@dataclass(frozen=True)
class Case:
    """One of our simulators, Gymnasium's counterpart, and where to draw states from."""

    name: str
    env_id: str
    simulator: TorchSimulator
    low: tuple[float, ...]  # of the states to start from
    high: tuple[float, ...]
    angles: tuple[int, ...] = ()  # entries of the state that are equal modulo a full turn
    # Gymnasium keeps the car's state in single precision.
    tolerance: float = 1e-9

    def make(self) -> Any:
        """Gymnasium's environment without the wrapper that complains about steps after the end."""
        env = gymnasium.make(self.env_id).unwrapped
        env.reset(seed=0)
        return env

    def step(self, env: Any, action: float) -> bool:
        """Apply our action, in [-1, 1], to Gymnasium's environment; whether it terminated."""
        given: Any = np.array([action], dtype=np.float64)
        if self.env_id == "CartPole-v1":
            env.force_mag = 10.0 * abs(action)
            env.steps_beyond_terminated = None  # or it would warn: states are drawn beyond the track's end, too
            given = int(action > 0.0)
        elif self.env_id == "Acrobot-v1":
            env.AVAIL_TORQUE = (action,)
            given = 0
        elif self.env_id == "Pendulum-v1":
            given = 2.0 * given
        return bool(env.step(given)[2])

    def gap(self, ours: torch.Tensor, theirs: Any) -> float:
        """Largest difference of two states."""
        difference = ours[: len(self.low)].double().numpy() - np.asarray(theirs, dtype=np.float64)
        for index in self.angles:
            difference[index] = (difference[index] + math.pi) % (2.0 * math.pi) - math.pi
        return float(np.abs(difference).max())

    def widened(self, state: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        """A state as our simulator holds it: (1, state_size)."""
        extra = self.simulator.state.shape[1] - len(state)
        return torch.cat([torch.tensor(state, dtype=dtype), torch.zeros(extra, dtype=dtype)]).unsqueeze(0)


PI = math.pi
CASES = [
    Case("pendulum", "Pendulum-v1", Pendulum(SEEDS), (-PI, -8.0), (PI, 8.0), angles=(0,)),
    Case("cartpole", "CartPole-v1", CartPole(SEEDS), (-2.3, -4.0, -PI, -8.0), (2.3, 4.0, PI, 8.0), angles=(2,)),
    Case("mountain_car", "MountainCarContinuous-v0", MountainCar(SEEDS), (-1.2, -0.07), (0.6, 0.07), (), 2e-7),
    Case(
        "acrobot",
        "Acrobot-v1",
        Acrobot(SEEDS, end_height=1.0),
        (-PI, -PI, -12.5, -28.0),
        (PI, PI, 12.5, 28.0),
        angles=(0, 1),
    ),
]
IDS = [case.name for case in CASES]


def starts(case: Case, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random states (count, size) and actions (count,)."""
    rng = np.random.default_rng(seed)
    return rng.uniform(case.low, case.high, (count, len(case.low))), rng.uniform(-1.0, 1.0, count)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_one_step_from_random_states_equals_gymnasium_in_double_precision(case: Case):
    env = case.make()
    for state, action in zip(*starts(case, STATES, 1), strict=True):
        env.state = state.copy()
        case.step(env, action)
        case.simulator.state = case.widened(state, torch.float64)
        case.simulator.step(torch.tensor([[action]], dtype=torch.float64))
        assert case.simulator.state.dtype == torch.float64
        assert case.gap(case.simulator.state[0], env.state) < case.tolerance, (state, action)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_one_step_as_trained_equals_gymnasium_to_single_precision(case: Case):
    """The batch is one step of all states at once; the tolerance is 1e-5 of the state's largest possible value."""
    env = case.make()
    states, actions = starts(case, STATES, 2)
    simulator = type(case.simulator)(torch.arange(STATES))
    simulator.state = torch.cat([case.widened(state, torch.float32) for state in states])
    simulator.step(torch.tensor(actions, dtype=torch.float32).unsqueeze(-1))
    for index, (state, action) in enumerate(zip(states, actions, strict=True)):
        env.state = state.copy()
        case.step(env, action)
        assert case.gap(simulator.state[index], env.state) < 1e-5 * max(1.0, *case.high), (state, action)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_free_running_trajectories_stay_together(case: Case):
    """Rounding differences may grow with each step, in the chaotic acrobot quickly, but equations may not differ."""
    env = case.make()
    states, _ = starts(case, 10, 3)
    actions = np.random.default_rng(4).uniform(-1.0, 1.0, (10, FREE_STEPS))
    for state, sequence in zip(states * 0.3, actions, strict=True):
        env.state = state.copy()
        case.simulator.state = case.widened(state, torch.float64)
        for action in sequence:
            case.step(env, action)
            case.simulator.step(torch.tensor([[action]], dtype=torch.float64))
            assert case.gap(case.simulator.state[0], env.state) < 1e-5


@pytest.mark.parametrize(
    ("case", "simulator"),
    [
        (CASES[1], CartPole(SEEDS, discrete=True, pole_limit=12.0 * 2.0 * PI / 360.0)),
        (CASES[2], MountainCar(SEEDS)),
        (CASES[3], Acrobot(SEEDS, end_height=1.0)),
    ],
    ids=IDS[1:],
)
def test_episodes_end_where_gymnasium_ends_them(case: Case, simulator: TorchSimulator):
    """States are drawn around each border, so that both answers occur often."""
    env = case.make()
    near = {
        "cartpole": ((-2.5, -1.0, -0.23, -1.0), (2.5, 1.0, 0.23, 1.0)),
        "mountain_car": ((0.40, -0.05), (0.5, 0.07)),
        "acrobot": (case.low, case.high),
    }[case.name]
    rng = np.random.default_rng(5)
    answers = []
    for _ in range(STATES):
        state, action = rng.uniform(*near), float(rng.choice([-1.0, 1.0]))
        env.state = state.copy()
        theirs = case.step(env, action)
        simulator.state = case.widened(state, torch.float64)
        given = torch.tensor([int(action > 0)]) if simulator.action_spec.discrete else torch.tensor([[action]])
        ours, _ = simulator.step(given)
        assert bool(ours) == theirs, (state, action)
        answers.append(theirs)
    assert 25 < sum(answers) < STATES - 25


def test_discrete_cartpole_pushes_like_gymnasium():
    case, simulator = CASES[1], CartPole(SEEDS, discrete=True)
    env = case.make()
    for state, action in zip(*starts(case, STATES, 6), strict=True):
        env.state, env.steps_beyond_terminated = state.copy(), None
        env.step(int(action > 0.0))
        simulator.state = case.widened(state, torch.float64)
        simulator.step(torch.tensor([int(action > 0.0)]))
        assert case.gap(simulator.state[0], env.state) < 1e-9


def test_repeated_actions_are_single_steps_in_a_row():
    once, twice = CartPole(torch.arange(7)), CartPole(torch.arange(7), action_repeat=2)
    assert twice.dt == 2 * once.dt
    action = torch.linspace(-1.0, 1.0, 7).unsqueeze(-1)
    once.step(action)
    once.step(action)
    twice.step(action)
    assert torch.equal(once.state, twice.state)


def test_acrobot_tip_height_is_gymnasiums():
    case = CASES[3]
    states, _ = starts(case, STATES, 7)
    simulator = Acrobot(torch.arange(STATES))
    simulator.state = torch.tensor(states)
    height = -np.cos(states[:, 0]) - np.cos(states[:, 0] + states[:, 1])
    np.testing.assert_allclose(simulator.fields()["tip_height"].numpy(), height, atol=1e-12)


def test_reacher_keeps_its_energy_without_friction_and_torque():
    """No outside reference exists: a frictionless arm keeps its kinetic energy, which a wrong term would change."""
    simulator = Reacher(torch.arange(64), damping=0.0)
    generator = torch.Generator().manual_seed(1)
    state = torch.zeros(64, 6, dtype=torch.float64)
    state[:, :2] = (torch.rand(64, 2, generator=generator, dtype=torch.float64) * 2.0 - 1.0) * PI
    state[:, 2:4] = (torch.rand(64, 2, generator=generator, dtype=torch.float64) * 2.0 - 1.0) * 2.0
    simulator.state = state

    def energy() -> torch.Tensor:
        first, second = simulator.state[:, 2], simulator.state[:, 3]
        m11, m12, m22 = mass_matrix(simulator.state[:, 1])
        return 0.5 * (m11 * first**2 + 2.0 * m12 * first * second + m22 * second**2)

    start = energy()
    for _ in range(100):
        simulator.step(torch.zeros(64, 2, dtype=torch.float64))
    assert float(((energy() - start) / start).abs().max()) < 2e-3


def test_reacher_mass_matrix_is_that_of_two_rods():
    """Kinetic energy of the two rods, from the velocities of their centres by finite differences."""
    rng = np.random.default_rng(8)
    for q1, q2, r1, r2 in rng.uniform(-2.0, 2.0, (50, 4)):

        def centres(time: float, a: float = q1, b: float = q2, va: float = r1, vb: float = r2) -> np.ndarray:
            one, both = a + va * time, a + b + (va + vb) * time
            elbow = LENGTH * np.array([np.cos(one), np.sin(one)])
            return np.stack([0.5 * elbow, elbow + 0.5 * LENGTH * np.array([np.cos(both), np.sin(both)])])

        speed = (centres(1e-6) - centres(-1e-6)) / 2e-6
        turning = 0.5 * INERTIA * (r1**2 + (r1 + r2) ** 2)
        expected = 0.5 * MASS * float((speed**2).sum()) + turning
        m11, m12, m22 = (float(m) for m in mass_matrix(torch.tensor([q2], dtype=torch.float64)))
        assert 0.5 * (m11 * r1**2 + 2.0 * m12 * r1 * r2 + m22 * r2**2) == pytest.approx(expected, rel=1e-6)
