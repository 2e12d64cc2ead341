"""Gain on the pad, speed that suits the height, upright; at touchdown a large bonus, or a penalty for a crash; the same
for being lost, or ending the episode early would be the cheapest way out."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    position: Tensor,
    prev_position: Tensor,
    velocity: Tensor,
    tilt: Tensor,
    touchdown: Tensor,
    landed: Tensor,
) -> Tuple[Tensor, Dict[str, Tensor]]:
    distance = torch.norm(position, dim=-1)
    gain = torch.norm(prev_position, dim=-1) - distance
    wanted = -0.6 - 0.3 * torch.clamp(position[:, 1], min=0.0)
    sinking = -0.1 * torch.abs(velocity[:, 1] - wanted)
    sideways = -0.1 * torch.abs(velocity[:, 0] + 0.5 * position[:, 0])
    upright = -0.3 * torch.abs(tilt)
    landing = 20.0 * landed.float()
    lost = (torch.abs(tilt) > 1.4) | (torch.abs(position[:, 0]) > 14.0) | (position[:, 1] > 24.0)
    crash = -10.0 * (touchdown.float() - landed.float() + lost.float())
    reward = gain + sinking + sideways + upright + landing + crash
    parts = {"gain": gain, "sinking": sinking, "sideways": sideways, "upright": upright}
    parts["landing"] = landing
    parts["crash"] = crash
    return reward, parts
