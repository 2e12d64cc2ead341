"""Distance to the goal, a bonus that grows in its last centimetres, and a price on speed and torque."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    fingertip_pos: Tensor, goal_pos: Tensor, joint_velocities: Tensor, action: Tensor
) -> Tuple[Tensor, Dict[str, Tensor]]:
    distance = torch.norm(fingertip_pos - goal_pos, dim=-1)
    approach = -distance
    close = torch.exp(-torch.square(distance / 0.08))
    slow = -0.005 * torch.sum(torch.square(joint_velocities), dim=-1)
    effort = -0.01 * torch.sum(torch.square(action), dim=-1)
    reward = approach + close + slow + effort
    return reward, {"approach": approach, "close": close, "slow": slow, "effort": effort}
