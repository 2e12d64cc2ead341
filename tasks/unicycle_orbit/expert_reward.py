"""Speed around the middle, near the wanted radius; never negative, so that leaving the arena cannot pay."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    position: Tensor, heading: Tensor, speed: Tensor, distance_to_middle: Tensor
) -> Tuple[Tensor, Dict[str, Tensor]]:
    near = torch.exp(-4.0 * torch.square(distance_to_middle - 1.0))
    velocity_x = speed * torch.cos(heading)
    velocity_y = speed * torch.sin(heading)
    moment = position[:, 0] * velocity_y - position[:, 1] * velocity_x
    around = moment / torch.clamp(distance_to_middle, min=0.1)
    radius = 0.5 * near
    orbit = 2.0 * near * torch.clamp(around, min=0.0, max=0.8)
    reward = radius + orbit
    return reward, {"radius": radius, "orbit": orbit}
