"""A planar arm of two links with a motor in each joint, moving in a horizontal plane (no gravity)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator, wrap_angle
from sandboxes.torch_sim.integrate import rk4

LENGTH = 0.5  # m, each link
MASS = 1.0  # kg, each link, a uniform rod
INERTIA = MASS * LENGTH**2 / 12.0  # kg m^2, each link about its centre
SHOULDER_TORQUE = 4.0  # N m, maximum
ELBOW_TORQUE = 2.0  # N m, maximum
MIN_GOAL_RADIUS = 0.25  # m
MAX_GOAL_RADIUS = 0.9  # m


class Reacher(TorchSimulator):
    """State: shoulder and elbow angles (rad, counter-clockwise positive; the elbow's against the first link),
    their rates (rad/s), and the goal position (x, y in m, fixed during an episode).

    The shoulder is the origin of the plane; with both angles 0 the arm lies along x.
    """

    action_spec = ActionSpec(size=2)
    observation_size = 12
    reset_draws = 4
    dt = 0.05
    episode_steps = 100

    def __init__(
        self,
        seeds: Tensor,
        device: Any = "cpu",
        episode_steps: int | None = None,
        damping: float = 0.5,
    ) -> None:
        """Build B arms.

        Args:
            seeds: (B,) int64. device: of all tensors. episode_steps: time limit.
            damping: friction torque in each joint per joint rate, N m s/rad.
        """
        self.damping = damping
        super().__init__(seeds, device, episode_steps)

    def initial_state(self, draws: Tensor) -> Tensor:
        """Any joint angles, at rest; the goal uniform over the ring between the two goal radii."""
        angles = (draws[:, :2] * 2.0 - 1.0) * torch.pi
        inner, outer = MIN_GOAL_RADIUS**2, MAX_GOAL_RADIUS**2
        radius = torch.sqrt(inner + (outer - inner) * draws[:, 2])
        bearing = draws[:, 3] * (2.0 * torch.pi)
        goal = torch.stack([radius * torch.cos(bearing), radius * torch.sin(bearing)], dim=-1)
        return torch.cat([angles, torch.zeros_like(angles), goal], dim=-1)

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """Runge-Kutta of fourth order, one step of `dt` under constant motor torques."""
        shoulder_torque, elbow_torque = SHOULDER_TORQUE * action[:, 0], ELBOW_TORQUE * action[:, 1]
        joints = rk4(lambda s: derivative(s, shoulder_torque, elbow_torque, self.damping), state[:, :4], self.dt)
        return torch.cat([wrap_angle(joints[:, :2]), joints[:, 2:], state[:, 4:]], dim=-1)

    def fields(self) -> dict[str, Tensor]:
        """Fingertip, joint angles in [-pi, pi), joint rates and goal: (B, 2) each."""
        return {
            "fingertip_pos": fingertip(self.state),
            "joint_angles": self.state[:, :2],
            "joint_velocities": self.state[:, 2:4],
            "goal_pos": self.state[:, 4:],
        }

    def observation(self) -> Tensor:
        """(B, 12): cosines and sines of the joints, joint rates, fingertip, goal, way from tip to goal."""
        angles, rates, goal = self.state[:, :2], self.state[:, 2:4], self.state[:, 4:]
        tip = fingertip(self.state)
        return torch.cat([torch.cos(angles), torch.sin(angles), rates, tip, goal, goal - tip], dim=-1)


def derivative(joints: Tensor, shoulder_torque: Tensor, elbow_torque: Tensor, damping: float) -> Tensor:
    """Time derivative of angles and rates (B, 4) under the motor torques (B,) in N m.

    The equation of motion of two rods, `M(q) q'' + c(q, q') = torque - damping q'`, solved for q''.
    """
    _, elbow, shoulder_rate, elbow_rate = joints.unbind(dim=-1)
    m11, m12, m22 = mass_matrix(elbow)
    pull = 0.5 * MASS * LENGTH**2 * torch.sin(elbow)
    rhs1 = shoulder_torque - damping * shoulder_rate
    rhs1 = rhs1 + pull * (2.0 * shoulder_rate * elbow_rate + torch.square(elbow_rate))
    rhs2 = elbow_torque - damping * elbow_rate - pull * torch.square(shoulder_rate)
    determinant = m11 * m22 - torch.square(m12)
    shoulder_change = (m22 * rhs1 - m12 * rhs2) / determinant
    elbow_change = (m11 * rhs2 - m12 * rhs1) / determinant
    return torch.stack([shoulder_rate, elbow_rate, shoulder_change, elbow_change], dim=-1)


def mass_matrix(elbow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Entries (1,1), (1,2) and (2,2) of the symmetric mass matrix in kg m^2, from elbow angles (B,)."""
    own = INERTIA + MASS * LENGTH**2 / 4.0
    coupling = 0.5 * MASS * LENGTH**2 * torch.cos(elbow)
    m22 = torch.full_like(elbow, own)
    m12 = own + coupling
    m11 = 2.0 * own + MASS * LENGTH**2 + 2.0 * coupling
    return m11, m12, m22


def fingertip(state: Tensor) -> Tensor:
    """Position of the arm's free end, (B, 2) in m, from a state that starts with the joint angles."""
    first, second = state[:, 0], state[:, 0] + state[:, 1]
    x = LENGTH * (torch.cos(first) + torch.cos(second))
    y = LENGTH * (torch.sin(first) + torch.sin(second))
    return torch.stack([x, y], dim=-1)
