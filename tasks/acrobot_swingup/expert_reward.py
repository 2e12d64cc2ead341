"""What the tip lacks in height, which every step costs, and a bonus once it is up."""

from typing import Dict, Tuple

from torch import Tensor


def compute_reward(tip_height: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
    lacking = 0.25 * (tip_height - 1.0)
    up = 10.0 * (tip_height > 1.0).float()
    reward = lacking + up
    return reward, {"lacking": lacking, "up": up}
