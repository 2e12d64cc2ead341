"""The cost of Gymnasium's Pendulum-v1, as a reward."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(angle: Tensor, angular_velocity: Tensor, action: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
    upright = -torch.square(angle)
    slow = -0.1 * torch.square(angular_velocity)
    effort = -0.004 * torch.sum(torch.square(action), dim=-1)
    reward = upright + slow + effort
    return reward, {"upright": upright, "slow": slow, "effort": effort}
