"""A car too weak to drive straight up a hill: Gymnasium's MountainCarContinuous-v0, batched."""

from __future__ import annotations

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator

POWER = 0.0015  # m/step^2 at full throttle
GRAVITY = 0.0025  # m/step^2 along the steepest slope
MIN_POSITION = -1.2  # m, a wall that stops the car
MAX_POSITION = 0.6  # m
MAX_SPEED = 0.07  # m/step
FLAG_POSITION = 0.45  # m, near the top of the right-hand hill


class MountainCar(TorchSimulator):
    """State: position (m, right positive; the valley's floor is at -pi/6) and velocity (m/step).

    The ground's height over position x is `0.45 sin(3 x) + 0.55`. The equations count steps, not seconds.
    """

    action_spec = ActionSpec(size=1)
    observation_size = 2
    reset_draws = 1
    dt = 1.0 / 30.0  # the rate at which Gymnasium shows it
    episode_steps = 999

    def initial_state(self, draws: Tensor) -> Tensor:
        """At rest in the valley, between -0.6 and -0.4 m."""
        position = -0.6 + 0.2 * draws[:, 0]
        return torch.stack([position, torch.zeros_like(position)], dim=-1)

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """One step: throttle and slope change the velocity, that changes the position; the wall stops."""
        position, velocity = state[:, 0], state[:, 1]
        velocity = velocity + POWER * action[:, 0] - GRAVITY * torch.cos(3.0 * position)
        velocity = velocity.clamp(-MAX_SPEED, MAX_SPEED)
        position = (position + velocity).clamp(MIN_POSITION, MAX_POSITION)
        at_wall = (position <= MIN_POSITION) & (velocity < 0.0)
        velocity = torch.where(at_wall, torch.zeros_like(velocity), velocity)
        return torch.stack([position, velocity], dim=-1)

    def terminated(self, state: Tensor) -> Tensor:
        """(B,) bool: the car has come to the flag and does not roll back."""
        return (state[:, 0] >= FLAG_POSITION) & (state[:, 1] >= 0.0)

    def fields(self) -> dict[str, Tensor]:
        """Position, velocity and height of the ground under the car: (B,) each."""
        position = self.state[:, 0]
        height = 0.45 * torch.sin(3.0 * position) + 0.55
        return {"position": position, "velocity": self.state[:, 1], "height": height}

    def observation(self) -> Tensor:
        """(B, 2): position from the valley's floor, velocity over its limit."""
        return torch.stack([self.state[:, 0] + torch.pi / 6.0, self.state[:, 1] / MAX_SPEED], dim=-1)
