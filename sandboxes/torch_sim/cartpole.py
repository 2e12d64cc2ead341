"""A pole hinged on a cart that runs along a track: the dynamics of Gymnasium's CartPole-v1, batched."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator, wrap_angle

GRAVITY = 9.8  # m/s^2
CART_MASS = 1.0  # kg
POLE_MASS = 0.1  # kg
HALF_LENGTH = 0.5  # m, from the hinge to the pole's centre of mass
MAX_FORCE = 10.0  # N
START_SPREAD = 0.05  # m, m/s, rad, rad/s
PHYSICS_DT = 0.02  # s


class CartPole(TorchSimulator):
    """State: cart position (m, right positive), cart velocity (m/s), pole angle (rad, 0 upright, leaning
    to the right positive), pole angular velocity (rad/s), target position of the cart (m, fixed in an episode).
    """

    action_spec = ActionSpec(size=1)
    observation_size = 6
    reset_draws = 5
    dt = PHYSICS_DT
    episode_steps = 500

    def __init__(
        self,
        seeds: Tensor,
        device: Any = "cpu",
        episode_steps: int | None = None,
        discrete: bool = False,
        hanging: bool = False,
        track_limit: float = 2.4,
        pole_limit: float | None = None,
        target_range: float = 0.0,
        action_repeat: int = 1,
    ) -> None:
        """Build B carts.

        Args:
            seeds: (B,) int64. device: of all tensors. episode_steps: time limit.
            discrete: two actions, full force to the left (0) or right (1), instead of a continuous force.
            hanging: the pole starts hanging down, not upright.
            track_limit: the episode ends when the cart is further than this from the middle, m.
            pole_limit: the episode ends when the pole leans more than this, rad; None: it may turn freely.
            target_range: the target position is uniform within this distance of the middle, m.
            action_repeat: physics steps of 0.02 s in one control step.
        """
        if discrete:
            self.action_spec = ActionSpec(size=2, discrete=True)  # type: ignore[misc]
        self.hanging = hanging
        self.track_limit = track_limit
        self.pole_limit = pole_limit
        self.target_range = target_range
        self.action_repeat = action_repeat
        self.dt = PHYSICS_DT * action_repeat
        super().__init__(seeds, device, episode_steps)

    def initial_state(self, draws: Tensor) -> Tensor:
        """Position, velocity, angle and angular velocity within 0.05 of rest at the middle of the track."""
        spread = (draws * 2.0 - 1.0) * START_SPREAD
        angle = spread[:, 2] + torch.pi if self.hanging else spread[:, 2]
        target = (draws[:, 4] * 2.0 - 1.0) * self.target_range
        return torch.stack([spread[:, 0], spread[:, 1], angle, spread[:, 3], target], dim=-1)

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """`action_repeat` steps of explicit Euler; the equations of Florian (2007) without friction."""
        push = (2 * action - 1).to(state.dtype) if self.action_spec.discrete else action[:, 0]
        for _ in range(self.action_repeat):
            state = euler_step(state, push * MAX_FORCE)
        return state

    def terminated(self, state: Tensor) -> Tensor:
        """(B,) bool: the cart has left the track, or the pole leans beyond its limit."""
        ended = torch.abs(state[:, 0]) > self.track_limit
        if self.pole_limit is not None:
            ended = ended | (torch.abs(state[:, 2]) > self.pole_limit)
        return ended

    def fields(self) -> dict[str, Tensor]:
        """Cart and pole, the angle wrapped to [-pi, pi), and the cart's target: (B,) each."""
        return {
            "cart_position": self.state[:, 0],
            "cart_velocity": self.state[:, 1],
            "pole_angle": wrap_angle(self.state[:, 2]),
            "pole_velocity": self.state[:, 3],
            "target_position": self.state[:, 4],
        }

    def observation(self) -> Tensor:
        """(B, 6): cart position and velocity, cosine, sine and rate of the angle, way left to the target."""
        position, velocity, angle, turning, target = self.state.unbind(dim=-1)
        values = [position, velocity, torch.cos(angle), torch.sin(angle), turning, target - position]
        return torch.stack(values, dim=-1)


def euler_step(state: Tensor, force: Tensor) -> Tensor:
    """State (B, 5) after 0.02 s under `force` (B,) in N."""
    position, velocity, angle, turning, target = state.unbind(dim=-1)
    total_mass = CART_MASS + POLE_MASS
    cosine, sine = torch.cos(angle), torch.sin(angle)
    push = (force + POLE_MASS * HALF_LENGTH * torch.square(turning) * sine) / total_mass
    leverage = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * torch.square(cosine) / total_mass)
    turning_rate = (GRAVITY * sine - cosine * push) / leverage
    acceleration = push - POLE_MASS * HALF_LENGTH * turning_rate * cosine / total_mass
    return torch.stack(
        [
            position + PHYSICS_DT * velocity,
            velocity + PHYSICS_DT * acceleration,
            angle + PHYSICS_DT * turning,
            turning + PHYSICS_DT * turning_rate,
            target,
        ],
        dim=-1,
    )
