"""A torque-limited pendulum: the dynamics of Gymnasium's Pendulum-v1, batched."""

from __future__ import annotations

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator, wrap_angle

GRAVITY = 10.0  # m/s^2
MASS = 1.0  # kg
LENGTH = 1.0  # m
MAX_TORQUE = 2.0  # N m; too weak to lift the pendulum in one go
MAX_SPEED = 8.0  # rad/s


class Pendulum(TorchSimulator):
    """State: angle (rad, 0 upright, counter-clockwise positive) and angular velocity (rad/s)."""

    action_spec = ActionSpec(size=1)
    observation_size = 3
    reset_draws = 2
    dt = 0.05
    episode_steps = 200

    def initial_state(self, draws: Tensor) -> Tensor:
        """Any angle, angular velocity within 1 rad/s."""
        angle = (draws[:, 0] * 2.0 - 1.0) * torch.pi
        velocity = draws[:, 1] * 2.0 - 1.0
        return torch.stack([angle, velocity], dim=-1)

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """Semi-implicit Euler, one step of `dt`."""
        angle, velocity = state[:, 0], state[:, 1]
        torque = MAX_TORQUE * action[:, 0]
        acceleration = 3.0 * GRAVITY / (2.0 * LENGTH) * torch.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        velocity = (velocity + acceleration * self.dt).clamp(-MAX_SPEED, MAX_SPEED)
        return torch.stack([angle + velocity * self.dt, velocity], dim=-1)

    def fields(self) -> dict[str, Tensor]:
        """Angle wrapped to [-pi, pi), and angular velocity: (B,) each."""
        return {"angle": wrap_angle(self.state[:, 0]), "angular_velocity": self.state[:, 1]}

    def observation(self) -> Tensor:
        """(B, 3): cosine and sine of the angle, angular velocity over its limit."""
        angle = self.state[:, 0]
        return torch.stack([torch.cos(angle), torch.sin(angle), self.state[:, 1] / MAX_SPEED], dim=-1)
