"""A quadrotor: a rigid body in three dimensions, its attitude a quaternion, pulled up by four rotors."""

from __future__ import annotations

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator

GRAVITY = 9.8  # m/s^2
MASS = 0.5  # kg
INERTIA = (0.01, 0.01, 0.018)  # kg m^2 about the body's axes
ARM = 0.12  # m, of a rotor from the body's x axis and from its y axis (X configuration)
YAW_LEVER = 0.03  # m, drag torque of a rotor over its thrust
AUTHORITY = 0.3  # largest change of a rotor's thrust, as a share of its hover thrust
DRAG = 0.2  # 1/s, of the motion through the air
SPIN_DRAG = 0.5  # 1/s, of the rotation
MAX_DISTANCE = 3.0  # m from the goal
MIN_UPRIGHT = 0.1  # cosine of the tilt at which it counts as upside down
SUBSTEPS = 2
# Rotors at front left, front right, rear left, rear right: signs of roll, pitch and yaw torque per thrust.
_MIXER = ((1.0, -1.0, 1.0), (-1.0, -1.0, -1.0), (1.0, 1.0, -1.0), (-1.0, 1.0, 1.0))


class Quadrotor(TorchSimulator):
    """State: position (m), velocity (m/s) in the world's frame (z up), attitude (unit quaternion w, x, y, z, body to
    world), angular velocity (rad/s) in the body's frame (x forwards, y left, z up), goal position (m).
    """

    action_spec = ActionSpec(size=4)
    observation_size = 18
    reset_draws = 13
    dt = 0.05
    episode_steps = 120

    def initial_state(self, draws: Tensor) -> Tensor:
        """Up to 0.6 m from the goal in each direction, tilted by up to about 0.3 rad, moving and turning slowly."""
        spread = draws * 2.0 - 1.0
        goal = torch.cat([0.5 * spread[:, :2], 1.5 + 0.5 * spread[:, 2:3]], dim=-1)
        position = goal + 0.6 * spread[:, 3:6]
        rotation = spread[:, 6:9] * torch.tensor([0.25, 0.25, torch.pi], device=draws.device)
        attitude = multiply(
            exponential(rotation * torch.tensor([0.0, 0.0, 1.0], device=draws.device)),
            exponential(rotation * torch.tensor([1.0, 1.0, 0.0], device=draws.device)),
        )
        velocity = 0.3 * spread[:, 9:12]
        turning = 0.3 * torch.cat([spread[:, 12:13], spread[:, 9:11]], dim=-1)
        return torch.cat([position, velocity, attitude, turning, goal], dim=-1)

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """Semi-implicit Euler in substeps; the attitude turns by the exponential map, so its length stays 1."""
        position, velocity, attitude, turning = state[:, :3], state[:, 3:6], state[:, 6:10], state[:, 10:13]
        thrusts = 0.25 * MASS * GRAVITY * (1.0 + AUTHORITY * action)  # (B, 4)
        levers = torch.tensor([ARM, ARM, YAW_LEVER], device=state.device)
        torque = thrusts @ torch.tensor(_MIXER, device=state.device) * levers
        lift = thrusts.sum(dim=-1, keepdim=True) / MASS
        inertia = torch.tensor(INERTIA, device=state.device)
        gravity = torch.tensor([0.0, 0.0, GRAVITY], device=state.device)
        step = self.dt / SUBSTEPS
        for _ in range(SUBSTEPS):
            gyroscopic = torch.linalg.cross(turning, inertia * turning)
            turning = turning + step * ((torque - gyroscopic) / inertia - SPIN_DRAG * turning)
            attitude = multiply(attitude, exponential(turning * step))
            attitude = attitude / torch.linalg.vector_norm(attitude, dim=-1, keepdim=True)
            velocity = velocity + step * (lift * body_up(attitude) - gravity - DRAG * velocity)
            position = position + step * velocity
        return torch.cat([position, velocity, attitude, turning, state[:, 13:]], dim=-1)

    def terminated(self, state: Tensor) -> Tensor:
        """(B,) bool: on the ground, too far from the goal, or upside down."""
        far: Tensor = torch.linalg.vector_norm(state[:, :3] - state[:, 13:], dim=-1) > MAX_DISTANCE
        return far | (state[:, 2] < 0.0) | (body_up(state[:, 6:10])[:, 2] < MIN_UPRIGHT)

    def fields(self) -> dict[str, Tensor]:
        """Position, velocity, angular velocity, goal (B, 3); attitude (B, 4); tilt (B,) in rad."""
        upright = body_up(self.state[:, 6:10])[:, 2]
        return {
            "position": self.state[:, :3],
            "velocity": self.state[:, 3:6],
            "attitude": self.state[:, 6:10],
            "angular_velocity": self.state[:, 10:13],
            "goal_pos": self.state[:, 13:],
            "tilt": torch.acos(upright.clamp(-1.0, 1.0)),
        }

    def observation(self) -> Tensor:
        """(B, 18): way to the goal and velocity in the body's frame, rotation matrix, angular velocity; SI units."""
        matrix = rotation_matrix(self.state[:, 6:10])
        way = self.state[:, 13:] - self.state[:, :3]
        seen = torch.stack([way, self.state[:, 3:6]], dim=-1)  # (B, 3, 2)
        in_body = torch.bmm(matrix.transpose(1, 2), seen)
        return torch.cat([in_body.transpose(1, 2).flatten(1), matrix.flatten(1), self.state[:, 10:13]], dim=-1)


def multiply(first: Tensor, second: Tensor) -> Tensor:
    """Product of quaternions (B, 4) each, w first."""
    w1, x1, y1, z1 = first.unbind(dim=-1)
    w2, x2, y2, z2 = second.unbind(dim=-1)
    return torch.stack(
        [
            w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
            w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
            w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
            w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
        ],
        dim=-1,
    )


def exponential(rotation: Tensor) -> Tensor:
    """Quaternion (B, 4) of a rotation vector (B, 3) in rad."""
    angle = torch.linalg.vector_norm(rotation, dim=-1, keepdim=True)
    scale = 0.5 * torch.sinc(angle / (2.0 * torch.pi))  # sin(angle / 2) / angle
    return torch.cat([torch.cos(angle / 2.0), scale * rotation], dim=-1)


def body_up(attitude: Tensor) -> Tensor:
    """The body's z axis in the world's frame: (B, 4) to (B, 3)."""
    w, x, y, z = attitude.unbind(dim=-1)
    return torch.stack([2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)], dim=-1)


def rotation_matrix(attitude: Tensor) -> Tensor:
    """Matrix (B, 3, 3) that turns vectors of the body's frame into the world's."""
    w, x, y, z = attitude.unbind(dim=-1)
    first = torch.stack([1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)], dim=-1)
    second = torch.stack([2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)], dim=-1)
    third = torch.stack([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)], dim=-1)
    return torch.stack([first, second, third], dim=1)
