"""A bonus for every step survived, less the lean, the distance from the middle and the speed."""

from typing import Dict, Tuple

import torch
from torch import Tensor


def compute_reward(
    cart_position: Tensor, cart_velocity: Tensor, pole_angle: Tensor, pole_velocity: Tensor
) -> Tuple[Tensor, Dict[str, Tensor]]:
    alive = torch.ones_like(pole_angle)
    upright = -5.0 * torch.square(pole_angle)
    centred = -0.1 * torch.square(cart_position)
    slow = -0.01 * (torch.square(cart_velocity) + torch.square(pole_velocity))
    reward = alive + upright + centred + slow
    return reward, {"alive": alive, "upright": upright, "centred": centred, "slow": slow}
