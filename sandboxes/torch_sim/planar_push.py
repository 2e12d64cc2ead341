"""A disc-shaped pusher and a puck on a table seen from above: the puck moves only when it is pushed, and soon stops."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.torch_sim.base import TorchSimulator

PUSHER_RADIUS = 0.06  # m
PUCK_RADIUS = 0.08  # m
TABLE = 1.0  # m, half of the table's side; its rim stops both discs
MAX_SPEED = 1.0  # m/s, of the pusher in each direction
RESPONSE_TIME = 0.1  # s, in which the pusher's velocity follows the command
FRICTION = 3.0  # m/s^2, deceleration of the sliding puck
SUBSTEPS = 4


class PlanarPush(TorchSimulator):
    """State, two values each: pusher (m), its velocity (m/s), puck (m), its velocity (m/s), goal (m, fixed)."""

    action_spec = ActionSpec(size=2)
    observation_size = 12
    reset_draws = 6
    dt = 0.1
    episode_steps = 80

    def __init__(self, seeds: Tensor, device: Any = "cpu", episode_steps: int | None = None) -> None:
        """Build B tables.

        Args:
            seeds: (B,) int64. device: of all tensors. episode_steps: time limit.
        """
        self.touching = torch.zeros(seeds.shape[0], dtype=torch.bool, device=device)
        super().__init__(seeds, device, episode_steps)

    def initial_state(self, draws: Tensor) -> Tensor:
        """All at rest: the puck near the middle, the goal 0.25 to 0.5 m from it, the pusher 0.2 to 0.4 m from it."""
        puck = (draws[:, :2] * 2.0 - 1.0) * 0.3
        goal = puck + polar(0.25 + 0.25 * draws[:, 2], draws[:, 3] * (2.0 * torch.pi))
        pusher = puck + polar(0.2 + 0.2 * draws[:, 4], draws[:, 5] * (2.0 * torch.pi))
        rest = torch.zeros_like(puck)
        return torch.cat([pusher, rest, puck, rest, goal], dim=-1)

    def advance(self, state: Tensor, action: Tensor) -> Tensor:
        """Substeps: the pusher follows its command, an overlapping puck is moved out and takes over the speed of the
        push, friction slows it down.
        """
        pusher, speed, puck, slide = state[:, :2], state[:, 2:4], state[:, 4:6], state[:, 6:8]
        step = self.dt / SUBSTEPS
        share = 1.0 - torch.exp(torch.tensor(-step / RESPONSE_TIME, device=state.device))
        touching = torch.zeros(state.shape[0], dtype=torch.bool, device=state.device)
        for _ in range(SUBSTEPS):
            speed = speed + share * (MAX_SPEED * action - speed)
            pusher = (pusher + step * speed).clamp(-TABLE + PUSHER_RADIUS, TABLE - PUSHER_RADIUS)
            size = torch.linalg.vector_norm(slide, dim=-1, keepdim=True)
            slide = slide * ((size - FRICTION * step).clamp(min=0.0) / size.clamp(min=1e-9))
            puck = puck + step * slide
            puck, slide, hit = push_out(pusher, speed, puck, slide)
            touching = touching | hit
            limit = TABLE - PUCK_RADIUS
            slide = torch.where(torch.abs(puck) > limit, 0.0, slide)
            puck = puck.clamp(-limit, limit)
        self.touching = touching
        return torch.cat([pusher, speed, puck, slide, state[:, 8:]], dim=-1)

    def reset(self, mask: Tensor | None = None) -> None:
        """See `sandboxes.base.Simulator.reset`."""
        super().reset(mask)
        self.touching = self.touching & ~mask if mask is not None else torch.zeros_like(self.touching)

    def fields(self) -> dict[str, Tensor]:
        """Positions and velocities of pusher and puck, and the goal (B, 2); touching (B,) bool."""
        return {
            "pusher_pos": self.state[:, :2],
            "pusher_velocity": self.state[:, 2:4],
            "puck_pos": self.state[:, 4:6],
            "puck_velocity": self.state[:, 6:8],
            "goal_pos": self.state[:, 8:],
            "touching": self.touching,
        }

    def observation(self) -> Tensor:
        """(B, 12): pusher (m), its velocity (m/s), way from pusher to puck, way from puck to goal, the puck's velocity,
        and the way from the pusher to where it would stand to push the puck to the goal.
        """
        pusher, puck, goal = self.state[:, :2], self.state[:, 4:6], self.state[:, 8:]
        way = goal - puck
        direction = way / torch.linalg.vector_norm(way, dim=-1, keepdim=True).clamp(min=1e-6)
        behind = puck - (PUSHER_RADIUS + PUCK_RADIUS) * direction
        return torch.cat([pusher, self.state[:, 2:4], puck - pusher, way, self.state[:, 6:8], behind - pusher], dim=-1)


def push_out(pusher: Tensor, speed: Tensor, puck: Tensor, slide: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Resolve the contact of two discs: the pusher does not give way, the puck does, without bouncing or friction.

    Args:
        pusher, speed, puck, slide: positions and velocities (B, 2).

    Returns:
        The puck's position and velocity (B, 2) afterwards, and whether they touched (B,) bool.
    """
    gap = puck - pusher
    distance = torch.linalg.vector_norm(gap, dim=-1, keepdim=True)
    normal = gap / distance.clamp(min=1e-9)
    depth = PUSHER_RADIUS + PUCK_RADIUS - distance
    hit = depth > 0.0
    approach = ((speed - slide) * normal).sum(dim=-1, keepdim=True).clamp(min=0.0)
    puck = torch.where(hit, puck + depth * normal, puck)
    slide = torch.where(hit, slide + approach * normal, slide)
    return puck, slide, hit.squeeze(-1)


def polar(radius: Tensor, bearing: Tensor) -> Tensor:
    """Points (B, 2) at a distance (B,) in m and bearing (B,) in rad."""
    return torch.stack([radius * torch.cos(bearing), radius * torch.sin(bearing)], dim=-1)
