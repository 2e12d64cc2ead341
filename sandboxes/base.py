"""The seam between the engine and everything that runs rewards: the `Simulator` protocol, requests and results.

The engine imports this module only; torch is named here for type checkers alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from sandboxes.isolation.levels import Isolation
from synth.task import Task

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ActionSpec:
    """What a simulator accepts: `size` continuous values in [-1, 1], or one of `size` discrete choices."""

    size: int
    discrete: bool = False


class Simulator(Protocol):
    """A batched environment: B independent copies advanced together.

    `step` leaves the state *after the step and before any reset*, so that the reward and the bootstrap value see the
    true last state; the caller then resets the finished environments with `reset(mask)`.
    """

    num_envs: int
    device: Any
    action_spec: ActionSpec
    observation_size: int
    dt: float  # seconds per control step
    episode_steps: int  # truncation happens after this many steps

    def reset(self, mask: Tensor | None = None) -> None:
        """Start a new episode in the environments where `mask` (B,) is true; in all when it is None."""

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Advance one control step.

        Args:
            action: (B, size) float in [-1, 1] (clipped), or (B,) int64 when discrete.

        Returns:
            terminated (B,) bool: the task itself ended the episode (no bootstrap);
            truncated (B,) bool: the time limit did (bootstrap from the last state).
        """

    def fields(self) -> dict[str, Tensor]:
        """Every state field of the present state, (B, *shape), hidden ones included, `action` excluded."""

    def observation(self) -> Tensor:
        """What the policy sees: (B, observation_size) float32."""


class SimulatorFactory(Protocol):
    """A simulator class, found by entry point in the group `synth.simulators`."""

    def __call__(self, seeds: Tensor, device: Any, **options: Any) -> Simulator:
        """Build B environments; `seeds` (B,) int64 alone decides every random number of environment b."""


class Failure(str, Enum):
    """Why a candidate, or one of its trainings, has no result."""

    SYNTAX = "syntax"  # not Python, or not a compute_reward function
    FORBIDDEN = "forbidden"  # refused by the static gate
    UNKNOWN_FIELD = "unknown_field"
    RAISED = "raised"  # the code raised an exception
    SHAPE = "shape"
    DTYPE = "dtype"
    RETURN = "return"  # not (reward, components)
    NON_FINITE = "non_finite"  # NaN or infinity
    TIMEOUT = "timeout"
    CRASHED = "crashed"  # the worker died
    VIOLATION = "violation"  # the worker was ended for what only hostile code tries
    SIMULATOR = "simulator"  # the simulator failed
    NO_CODE = "no_code"  # the model's answer held no code
    DUPLICATE = "duplicate"


@dataclass(frozen=True)
class RewardProblem:
    """One error of a reward in words that both a person and the Coder can act on."""

    kind: Failure
    message: str
    line: int | None = None


@dataclass(frozen=True)
class RewardSource:
    """A reward to run: its identity and source. The source None stands for the task's own sparse reward (trusted)."""

    id: str
    source: str | None


@dataclass(frozen=True)
class CheckReport:
    """What one reward does on recorded states."""

    problems: tuple[RewardProblem, ...]
    scriptable: bool = False
    components: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fingerprint: str | None = None  # hash of the reward's values on the recorded states, for de-duplication

    @property
    def ok(self) -> bool:
        """Whether the reward can be trained."""
        return not self.problems


@dataclass(frozen=True)
class TrainingRequest:
    """Train every reward with every seed, all of them at once, for the same number of environment steps each."""

    task: Task
    rewards: tuple[RewardSource, ...]
    seeds: tuple[int, ...]
    env_steps: int
    checkpoints: int = 10
    reward_deadline_s: float = 20.0  # for one reward call on a whole rollout


@dataclass(frozen=True)
class ComponentStats:
    """One reward component over the rollouts since the previous checkpoint."""

    mean: float
    std: float
    min: float
    max: float
    share: float  # mean |component| divided by the sum of that over all components


@dataclass(frozen=True)
class Checkpoint:
    """What was measured at one of the evenly spaced checkpoints of a training."""

    env_steps: int
    metric: float  # deterministic policy, fixed evaluation seeds
    reward: float  # mean reward per step over the rollouts since the previous checkpoint
    episode_length: float
    components: dict[str, ComponentStats] = field(default_factory=dict)


@dataclass(frozen=True)
class MemberResult:
    """One reward trained with one seed."""

    reward_id: str
    seed: int
    metric: float | None  # of the final policy; None when the training failed
    checkpoints: tuple[Checkpoint, ...]
    env_steps: int
    problem: RewardProblem | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingResult:
    """All members of one population training."""

    members: tuple[MemberResult, ...]
    env_steps: int
    wall_s: float

    def of(self, reward_id: str) -> list[MemberResult]:
        """The members that trained this reward, in the order of the request's seeds."""
        return [m for m in self.members if m.reward_id == reward_id]


class Progress(Protocol):
    """Told how far a long piece of work has come."""

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` units (environment steps for a training)."""


class Sandbox(Protocol):
    """Checks and trains rewards. Implemented by `sandboxes.pool.Pool`."""

    def isolation(self) -> Isolation:
        """How well rewards are confined here; waits until that is known.

        Raises:
            SynthError: less well than was demanded.
        """

    def check(self, task: Task, sources: list[str]) -> list[CheckReport]:
        """Run each reward on recorded states of the task; never raises for what a reward does."""

    def train(self, request: TrainingRequest, progress: Progress | None = None) -> TrainingResult:
        """Train; a reward's failure is data in the result, never an exception."""

    def close(self) -> None:
        """End every process that was started."""
