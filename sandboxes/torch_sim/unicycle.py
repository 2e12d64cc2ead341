"""A vehicle with two driven wheels on a plane: it drives forwards or backwards and turns, but never slips sideways."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator, wrap_angle

MAX_SPEED = 1.0  # m/s, forwards and backwards
MAX_TURN_RATE = 2.0  # rad/s
RESPONSE_TIME = 0.2  # s, in which speed and turn rate follow the command
ARENA = 3.0  # m, half of the side of the square that must not be left


class Unicycle(TorchSimulator):
    """State: x, y (m), heading (rad, counter-clockwise from the x axis), speed (m/s), turn rate (rad/s), and the goal:
    x, y (m) and heading (rad), fixed in an episode.
    """

    action_spec = ActionSpec(size=2)
    observation_size = 8
    reset_draws = 6
    dt = 0.1
    episode_steps = 100

    def __init__(
        self, seeds: Tensor, device: Any = "cpu", episode_steps: int | None = None, goal_range: float = 0.0
    ) -> None:
        """Build B vehicles.

        Args:
            seeds: (B,) int64. device: of all tensors. episode_steps: time limit.
            goal_range: the goal's coordinates are uniform within this distance of the middle, m.
        """
        self.goal_range = goal_range
        super().__init__(seeds, device, episode_steps)

    def initial_state(self, draws: Tensor) -> Tensor:
        """Anywhere within 1.5 m of the middle, any heading, at rest; the goal as `goal_range` says, any heading."""
        spread = draws * 2.0 - 1.0
        rest = torch.zeros_like(spread[:, :2])
        return torch.cat(
            [
                spread[:, :2] * 1.5,
                spread[:, 2:3] * torch.pi,
                rest,
                spread[:, 3:5] * self.goal_range,
                spread[:, 5:6] * torch.pi,
            ],
            dim=-1,
        )

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """One step of `dt`: the wheels follow the command with a lag, the vehicle drives along a circular arc."""
        x, y, heading, speed, turn_rate = state[:, :5].unbind(dim=-1)
        share = 1.0 - torch.exp(torch.tensor(-self.dt / RESPONSE_TIME, device=state.device))
        speed = speed + share * (MAX_SPEED * action[:, 0] - speed)
        turn_rate = turn_rate + share * (MAX_TURN_RATE * action[:, 1] - turn_rate)
        dx, dy = arc(heading, speed, turn_rate, self.dt)
        heading = wrap_angle(heading + turn_rate * self.dt)
        moved = torch.stack([x + dx, y + dy, heading, speed, turn_rate], dim=-1)
        return torch.cat([moved, state[:, 5:]], dim=-1)

    def terminated(self, state: Tensor) -> Tensor:
        """(B,) bool: it has left the arena."""
        return (torch.abs(state[:, :2]) > ARENA).any(dim=-1)

    def fields(self) -> dict[str, Tensor]:
        """Position and goal (B, 2); heading, speed, turn rate, goal heading and the angle left to it (B,)."""
        return {
            "position": self.state[:, :2],
            "heading": self.state[:, 2],
            "speed": self.state[:, 3],
            "turn_rate": self.state[:, 4],
            "goal_pos": self.state[:, 5:7],
            "goal_heading": self.state[:, 7],
            "heading_left": wrap_angle(self.state[:, 7] - self.state[:, 2]),
            "distance_to_middle": torch.linalg.vector_norm(self.state[:, :2], dim=-1),
        }

    def observation(self) -> Tensor:
        """(B, 8): the goal in the vehicle's frame (m), cosine and sine of the heading left, speed, turn rate, and the
        middle of the arena in the vehicle's frame (m).
        """
        heading, left = self.state[:, 2], wrap_angle(self.state[:, 7] - self.state[:, 2])
        goal = in_frame(self.state[:, 5:7] - self.state[:, :2], heading)
        middle = in_frame(-self.state[:, :2], heading)
        rest = [torch.cos(left), torch.sin(left), self.state[:, 3], self.state[:, 4]]
        return torch.cat([goal, torch.stack(rest, dim=-1), middle], dim=-1)


def arc(heading: Tensor, speed: Tensor, turn_rate: Tensor, dt: float) -> tuple[Tensor, Tensor]:
    """Way (dx, dy) in m, (B,) each, driven in `dt` at constant speed and turn rate: the chord of a circular arc."""
    half = 0.5 * turn_rate * dt
    chord = speed * dt * torch.sinc(half / torch.pi)  # torch.sinc(x) is sin(pi x) / (pi x)
    return chord * torch.cos(heading + half), chord * torch.sin(heading + half)


def in_frame(vector: Tensor, heading: Tensor) -> Tensor:
    """Vectors (B, 2) of the plane in the frame of a vehicle with this heading (B,): forwards, to the left."""
    cosine, sine = torch.cos(heading), torch.sin(heading)
    forwards = cosine * vector[:, 0] + sine * vector[:, 1]
    left = cosine * vector[:, 1] - sine * vector[:, 0]
    return torch.stack([forwards, left], dim=-1)
