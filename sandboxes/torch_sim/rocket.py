"""A rocket in a vertical plane that must land on its engine: throttle and gimbal, no aerodynamics, no loss of mass."""

from __future__ import annotations

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator

GRAVITY = 9.8  # m/s^2
MAX_THRUST = 20.0  # m/s^2 at full throttle, thrust over mass
MAX_GIMBAL = 0.2  # rad, of the engine against the rocket's axis
LEVER = 2.0  # 1/m, thrust to angular acceleration: distance of the engine from the centre over the radius of gyration^2
SPIN_DAMPING = 0.5  # 1/s
SIDE_LIMIT = 15.0  # m
TOP_LIMIT = 25.0  # m
SAFE_SPEED = 2.0  # m/s at touchdown, in either direction
SAFE_TILT = 0.25  # rad at touchdown
PAD = 2.0  # m, half of the pad's width
SUBSTEPS = 2


class Rocket(TorchSimulator):
    """State: x (m, right of the pad's middle), height (m above the pad), velocities (m/s), tilt (rad, 0 upright, to the
    right positive) and its rate (rad/s).
    """

    action_spec = ActionSpec(size=2)
    observation_size = 7
    reset_draws = 5
    dt = 0.1
    episode_steps = 100

    def initial_state(self, draws: Tensor) -> Tensor:
        """8 to 12 m above the pad and up to 4 m beside it, sinking at 1 to 3 m/s, drifting and tilted a little."""
        spread = draws * 2.0 - 1.0
        x, height = spread[:, 0] * 4.0, 10.0 + 2.0 * spread[:, 1]
        drift, sinking = spread[:, 2], -2.0 - spread[:, 3]
        return torch.stack([x, height, drift, sinking, 0.2 * spread[:, 4], torch.zeros_like(x)], dim=-1)

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """Semi-implicit Euler in substeps. The throttle's middle, 0, is hover thrust; -1 is engine off."""
        x, height, drift, climb, tilt, spin = state.unbind(dim=-1)
        throttle = action[:, 0]
        hover = GRAVITY / MAX_THRUST
        thrust = MAX_THRUST * torch.where(throttle < 0, hover * (1.0 + throttle), hover + (1.0 - hover) * throttle)
        gimbal = MAX_GIMBAL * action[:, 1]
        step = self.dt / SUBSTEPS
        for _ in range(SUBSTEPS):
            spin = spin + step * (LEVER * thrust * torch.sin(gimbal) - SPIN_DAMPING * spin)
            tilt = tilt + step * spin
            direction = tilt - gimbal
            drift = drift + step * thrust * torch.sin(direction)
            climb = climb + step * (thrust * torch.cos(direction) - GRAVITY)
            x, height = x + step * drift, height + step * climb
        return torch.stack([x, height, drift, climb, tilt, spin], dim=-1)

    def terminated(self, state: Tensor) -> Tensor:
        """(B,) bool: touchdown, or lost: too far to the side, too high, or upside down."""
        lost = (torch.abs(state[:, 0]) > SIDE_LIMIT) | (state[:, 1] > TOP_LIMIT) | (torch.abs(state[:, 4]) > 1.6)
        return (state[:, 1] <= 0.0) | lost

    def fields(self) -> dict[str, Tensor]:
        """Position and velocity (B, 2), tilt and its rate (B,); touchdown and landed (B,) bool."""
        touchdown = self.state[:, 1] <= 0.0
        return {
            "position": self.state[:, :2],
            "velocity": self.state[:, 2:4],
            "tilt": self.state[:, 4],
            "tilt_rate": self.state[:, 5],
            "touchdown": touchdown,
            "landed": touchdown & is_soft(self.state),
        }

    def observation(self) -> Tensor:
        """(B, 7): position over 10 m, velocity over 5 m/s, cosine and sine of the tilt, its rate."""
        position, velocity = self.state[:, :2] / 10.0, self.state[:, 2:4] / 5.0
        tilt, spin = self.state[:, 4:5], self.state[:, 5:6]
        return torch.cat([position, velocity, torch.cos(tilt), torch.sin(tilt), spin], dim=-1)


def is_soft(state: Tensor) -> Tensor:
    """Whether a rocket in these states (B, 6) would land well: on the pad, slow, upright. (B,) bool."""
    slow = (torch.abs(state[:, 2]) < SAFE_SPEED) & (torch.abs(state[:, 3]) < SAFE_SPEED)
    return slow & (torch.abs(state[:, 4]) < SAFE_TILT) & (torch.abs(state[:, 0]) < PAD)
