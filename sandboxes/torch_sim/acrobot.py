"""Two links hanging from a pivot, driven at the elbow only: Gymnasium's Acrobot-v1, batched."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator, wrap_angle
from sandboxes.torch_sim.integrate import rk4

GRAVITY = 9.8  # m/s^2
MASS = 1.0  # kg, each link
LENGTH = 1.0  # m, each link
CENTRE = 0.5  # m, from a link's upper end to its centre of mass
INERTIA = 1.0  # kg m^2, each link about its centre of mass
MAX_TORQUE = 1.0  # N m; too weak to lift the links in one go
MAX_SHOULDER_SPEED = 4.0 * torch.pi  # rad/s
MAX_ELBOW_SPEED = 9.0 * torch.pi  # rad/s


class Acrobot(TorchSimulator):
    """State: shoulder angle (rad, 0 hanging down, counter-clockwise positive), elbow angle (rad, of the lower
    link against the upper one, 0 stretched), and their rates (rad/s).
    """

    action_spec = ActionSpec(size=1)
    observation_size = 6
    reset_draws = 4
    dt = 0.2
    episode_steps = 500

    def __init__(
        self,
        seeds: Tensor,
        device: Any = "cpu",
        episode_steps: int | None = None,
        end_height: float | None = None,
    ) -> None:
        """Build B acrobots.

        Args:
            seeds: (B,) int64. device: of all tensors. episode_steps: time limit.
            end_height: the episode ends when the tip is higher than this above the pivot, m (Gymnasium: 1.0);
                None: only the time limit ends it.
        """
        self.end_height = end_height
        super().__init__(seeds, device, episode_steps)

    def initial_state(self, draws: Tensor) -> Tensor:
        """Angles within 0.1 rad of hanging, rates within 0.1 rad/s."""
        return (draws * 2.0 - 1.0) * 0.1

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """Runge-Kutta of fourth order, one step of `dt` of constant torque; angles wrapped, rates limited."""
        torque = MAX_TORQUE * action[:, 0]
        state = rk4(lambda s: derivative(s, torque), state, self.dt)
        return torch.stack(
            [
                wrap_angle(state[:, 0]),
                wrap_angle(state[:, 1]),
                state[:, 2].clamp(-MAX_SHOULDER_SPEED, MAX_SHOULDER_SPEED),
                state[:, 3].clamp(-MAX_ELBOW_SPEED, MAX_ELBOW_SPEED),
            ],
            dim=-1,
        )

    def terminated(self, state: Tensor) -> Tensor:
        """(B,) bool: the tip is above `end_height`."""
        if self.end_height is None:
            return super().terminated(state)
        return tip_height(state) > self.end_height

    def fields(self) -> dict[str, Tensor]:
        """Joint angles in [-pi, pi), their rates, and the tip's height above the pivot: (B,) each."""
        return {
            "shoulder_angle": self.state[:, 0],
            "elbow_angle": self.state[:, 1],
            "shoulder_velocity": self.state[:, 2],
            "elbow_velocity": self.state[:, 3],
            "tip_height": tip_height(self.state),
        }

    def observation(self) -> Tensor:
        """(B, 6): cosine and sine of both angles, both rates in rad/s."""
        shoulder, elbow, shoulder_rate, elbow_rate = self.state.unbind(dim=-1)
        angles = [torch.cos(shoulder), torch.sin(shoulder), torch.cos(elbow), torch.sin(elbow)]
        return torch.stack([*angles, shoulder_rate, elbow_rate], dim=-1)


def derivative(state: Tensor, torque: Tensor) -> Tensor:
    """Time derivative of the state (B, 4) under the elbow's `torque` (B,) in N m.

    Source: Sutton and Barto, Reinforcement Learning (the "book" version in Gymnasium), with equal links.
    """
    shoulder, elbow, shoulder_rate, elbow_rate = state.unbind(dim=-1)
    cosine, sine = torch.cos(elbow), torch.sin(elbow)
    coupling = MASS * LENGTH * CENTRE
    d1 = MASS * (2.0 * CENTRE**2 + LENGTH**2) + 2.0 * coupling * cosine + 2.0 * INERTIA
    d2 = MASS * CENTRE**2 + coupling * cosine + INERTIA
    phi2 = MASS * CENTRE * GRAVITY * torch.sin(shoulder + elbow)
    phi1 = (
        -coupling * torch.square(elbow_rate) * sine
        - 2.0 * coupling * elbow_rate * shoulder_rate * sine
        + MASS * (CENTRE + LENGTH) * GRAVITY * torch.sin(shoulder)
        + phi2
    )
    lever = MASS * CENTRE**2 + INERTIA - torch.square(d2) / d1
    elbow_change = (torque + d2 / d1 * phi1 - coupling * torch.square(shoulder_rate) * sine - phi2) / lever
    shoulder_change = -(d2 * elbow_change + phi1) / d1
    return torch.stack([shoulder_rate, elbow_rate, shoulder_change, elbow_change], dim=-1)


def tip_height(state: Tensor) -> Tensor:
    """Height of the lower link's free end above the pivot, m: (B, 4) to (B,)."""
    return -LENGTH * (torch.cos(state[:, 0]) + torch.cos(state[:, 0] + state[:, 1]))
