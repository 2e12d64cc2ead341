"""Episodes that are cut off go on in the value function; episodes that end do not.

On a ring of places the agent moves one place a step, whatever it does, and earns 1 on leaving the last. Values are then
known exactly, and every wrong treatment of an episode's end (no bootstrap, bootstrap from the next episode's start,
bootstrap after a true end) gives others.
"""

import pytest
import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator
from sandboxes.torch_sim.rng import env_seeds
from sandboxes.trainer.normalise import ObservationNormaliser
from sandboxes.trainer.policy import PopulationPolicy
from sandboxes.trainer.ppo import PPO
from sandboxes.trainer.rollout import Collector
from synth.task import TrainingDefaults

PLACES, DISCOUNT, ENVS = 6, 0.8, 64
CPU = torch.device("cpu")


class Ring(TorchSimulator):
    """State: the place, 0 to 5; after 5 comes 0, or the end when `ends` is set."""

    action_spec = ActionSpec(1)
    observation_size = PLACES
    reset_draws = 1
    episode_steps = 3
    ends = False

    def initial_state(self, draws: Tensor) -> Tensor:
        return (draws * PLACES).floor()

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        return (state + 1) % PLACES

    def terminated(self, state: Tensor) -> Tensor:
        return (state[:, 0] == 0) & self.ends

    def fields(self) -> dict[str, Tensor]:
        return {"place": self.state[:, 0]}

    def observation(self) -> Tensor:
        return torch.nn.functional.one_hot(self.state[:, 0].long(), PLACES).float()


class EndingRing(Ring):
    ends = True


@pytest.mark.parametrize("kind", [Ring, EndingRing], ids=["truncated only", "terminated or truncated"])
def test_values_follow_the_meaning_of_an_episodes_end(kind: type[Ring]):
    settings = TrainingDefaults(discount=DISCOUNT, learning_rate=3e-3, target_kl=0.05)
    simulator = kind(torch.cat([env_seeds(seed, ENVS) for seed in (0, 1)]))
    policy = PopulationPolicy(PLACES, Ring.action_spec, (32,), 1.0, (0, 1), CPU)
    normaliser = ObservationNormaliser(2, PLACES, CPU)
    collector = Collector(simulator, policy, normaliser, (0, 1), ("place",))
    ppo = PPO(policy, settings, CPU)
    for _ in range(150):
        rollout = collector.collect(16)
        reward = (rollout.fields["place"] == 0).float().view(16, 2, ENVS)
        ppo.update(rollout, reward, 0.0)
    steps_left = torch.arange(PLACES - 1, -1, -1.0)  # until the reward
    expected = DISCOUNT**steps_left
    if not kind.ends:
        expected = expected / (1.0 - DISCOUNT**PLACES)
    places = torch.eye(PLACES).expand(2, PLACES, PLACES)
    found = policy.value(normaliser(places))
    torch.testing.assert_close(found, expected.expand(2, PLACES), atol=0.05, rtol=0.0)
