"""Height of the tip, a bonus above the pivot's bar, and slowness up there."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    tip_height: Tensor, shoulder_velocity: Tensor, elbow_velocity: Tensor
) -> Tuple[Tensor, Dict[str, Tensor]]:
    height = 0.25 * (tip_height + 2.0)
    above = torch.sigmoid(5.0 * (tip_height - 1.0))
    speed = torch.square(shoulder_velocity) + 0.5 * torch.square(elbow_velocity)
    still = above * torch.exp(-0.3 * speed)
    reward = height + above + still
    return reward, {"height": height, "above": above, "still": still}
