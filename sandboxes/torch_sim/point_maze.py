"""A disc on a square floor with a U-shaped wall between it and its goal: the straight way is a dead end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator

ARENA = 1.5  # m, half of the floor's side; its rim stops the disc
RADIUS = 0.08  # m, of the disc
MAX_ACCELERATION = 6.0  # m/s^2
DAMPING = 3.0  # 1/s; with it the disc cannot exceed 2 m/s
SUBSTEPS = 2
# The U opens to the left: upper arm, lower arm, back. Each box is (x from, x to, y from, y to) in m.
WALLS = ((-0.5, 0.6, 0.5, 0.7), (-0.5, 0.6, -0.7, -0.5), (0.4, 0.6, -0.7, 0.7))
# The shortest ways around it pass these corners, at the disc's radius from the wall.
_TIP, _TOP, _BACK = -0.5 - RADIUS, 0.7 + RADIUS, 0.6 + RADIUS


class PointMaze(TorchSimulator):
    """State: x, y (m), velocity (m/s), and the goal x, y (m, fixed in an episode).

    The disc starts inside the U, the goal lies behind its back wall.
    """

    action_spec = ActionSpec(size=2)
    observation_size = 8
    reset_draws = 4
    dt = 0.1
    episode_steps = 100

    def __init__(self, seeds: Tensor, device: Any = "cpu", episode_steps: int | None = None) -> None:
        """Build B floors.

        Args:
            seeds: (B,) int64. device: of all tensors. episode_steps: time limit.
        """
        self.walls = torch.tensor(WALLS, device=device)  # (W, 4)
        self.touching = torch.zeros(seeds.shape[0], dtype=torch.bool, device=device)
        super().__init__(seeds, device, episode_steps)

    def initial_state(self, draws: Tensor) -> Tensor:
        """At rest inside the U; the goal between its back wall and the floor's right rim."""
        start = torch.stack([-0.3 + 0.5 * draws[:, 0], -0.3 + 0.6 * draws[:, 1]], dim=-1)
        goal = torch.stack([0.9 + 0.4 * draws[:, 2], -0.4 + 0.8 * draws[:, 3]], dim=-1)
        return torch.cat([start, torch.zeros_like(start), goal], dim=-1)

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """Semi-implicit Euler in substeps; after each the disc is pushed out of walls and loses what ran into them."""
        position, velocity = state[:, :2], state[:, 2:4]
        step = self.dt / SUBSTEPS
        touching = torch.zeros(state.shape[0], dtype=torch.bool, device=state.device)
        for _ in range(SUBSTEPS):
            velocity = velocity + step * (MAX_ACCELERATION * action - DAMPING * velocity)
            position = position + step * velocity
            for wall in self.walls:
                position, velocity, hit = leave_box(position, velocity, wall)
                touching = touching | hit
            limit = ARENA - RADIUS
            outside = torch.abs(position) > limit
            position = position.clamp(-limit, limit)
            velocity = torch.where(outside, 0.0, velocity)
            touching = touching | outside.any(dim=-1)
        self.touching = touching
        return torch.cat([position, velocity, state[:, 4:]], dim=-1)

    def reset(self, mask: Tensor | None = None) -> None:
        """See `sandboxes.base.Simulator.reset`."""
        super().reset(mask)
        self.touching = self.touching & ~mask if mask is not None else torch.zeros_like(self.touching)

    def fields(self) -> dict[str, Tensor]:
        """Position, velocity, goal (B, 2); length of the shortest free way to the goal (B,); touching (B,) bool."""
        return {
            "position": self.state[:, :2],
            "velocity": self.state[:, 2:4],
            "goal_pos": self.state[:, 4:],
            "way_left": way_around(self.state[:, :2], self.state[:, 4:]),
            "touching": self.touching,
        }

    def observation(self) -> Tensor:
        """(B, 8): position in m, velocity in m/s, goal in m, straight way from disc to goal in m."""
        return torch.cat([self.state, self.state[:, 4:] - self.state[:, :2]], dim=-1)


def leave_box(position: Tensor, velocity: Tensor, wall: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Push discs out of one box.

    Args:
        position, velocity: (B, 2). wall: (4,) x from, x to, y from, y to.

    Returns:
        position, velocity (B, 2) without the part that points into the wall, and whether it was touched (B,).
    """
    low, high = wall[0::2], wall[1::2]
    nearest = torch.minimum(torch.maximum(position, low), high)
    gap = position - nearest
    distance = torch.linalg.vector_norm(gap, dim=-1, keepdim=True)
    # A centre inside the box leaves through the nearest face.
    to_low, to_high = position - low, high - position
    depth = torch.minimum(to_low, to_high)  # (B, 2)
    axis = torch.nn.functional.one_hot(depth.argmin(dim=-1), 2).to(position.dtype)
    face = axis * torch.where(to_low < to_high, -1.0, 1.0)
    inside = distance < 1e-9
    normal = torch.where(inside, face, gap / distance.clamp(min=1e-9))
    push = torch.where(inside, RADIUS + (axis * depth).sum(dim=-1, keepdim=True), RADIUS - distance)
    hit = (push > 0.0).squeeze(-1)
    inwards = (velocity * normal).sum(dim=-1, keepdim=True).clamp(max=0.0)
    position = torch.where(hit.unsqueeze(-1), position + push * normal, position)
    velocity = torch.where(hit.unsqueeze(-1), velocity - inwards * normal, velocity)
    return position, velocity, hit


def way_around(position: Tensor, goal: Tensor) -> Tensor:
    """Length of the shortest free way from `position` to `goal`, (B, 2) each to (B,), in m.

    The way bends only at the U's outer corners (grown by the disc's radius to a square rim, so that it is a little
    longer than the true one). Of the two ways, above and below, the shorter counts; so does the straight one if free.
    """
    above = _way_over(position, goal)
    mirror = torch.tensor([1.0, -1.0], device=position.device)
    return torch.minimum(above, _way_over(position * mirror, goal * mirror))


def _way_over(position: Tensor, goal: Tensor) -> Tensor:
    """The way over the upper arm: through as many of its corners as are still ahead."""
    inner_tip = torch.tensor([_TIP, 0.5 - RADIUS], device=position.device)
    outer_tip = torch.tensor([_TIP, _TOP], device=position.device)
    back = torch.tensor([_BACK, _TOP], device=position.device)
    corners = [inner_tip, outer_tip, back]
    best = torch.where(_free(position, goal), _length(position, goal), torch.inf)
    for first in range(len(corners)):
        rest = sum(float(_length(a, b)) for a, b in pairwise(corners[first:]))
        way = _length(position, corners[first]) + rest + _length(corners[-1], goal)
        best = torch.minimum(best, torch.where(_free(position, corners[first].expand_as(position)), way, torch.inf))
    return best


def _length(start: Tensor, end: Tensor) -> Tensor:
    way: Tensor = torch.linalg.vector_norm(start - end, dim=-1)
    return way


def _free(start: Tensor, end: Tensor) -> Tensor:
    """Whether the straight way from start to end (B, 2) misses every wall, (B,) bool.

    The walls are grown by as much as a disc that touches a corner leaves free on either side of it.
    """
    direction = end - start
    safe = torch.where(torch.abs(direction) < 1e-9, 1e-9, direction)
    free = torch.ones(start.shape[0], dtype=torch.bool, device=start.device)
    margin = 0.7 * RADIUS
    for x_from, x_to, y_from, y_to in WALLS:
        low = torch.tensor([x_from, y_from], device=start.device) - margin
        high = torch.tensor([x_to, y_to], device=start.device) + margin
        first, second = (low - start) / safe, (high - start) / safe
        enter = torch.minimum(first, second).amax(dim=-1).clamp(min=0.0)
        leave = torch.maximum(first, second).amin(dim=-1).clamp(max=1.0)
        free = free & (enter >= leave)
    return free
