"""Share of the episode's second half with the tip more than one link's length above the pivot."""

from torch import Tensor


def compute_metric(tip_height: Tensor) -> Tensor:
    """Heights (T, B) of whole episodes to the metric (B,) in [0, 1]; the first half is for swinging up."""
    return (tip_height[tip_height.shape[0] // 2 :] > 1.0).float().mean(dim=0)


def sparse_reward(tip_height: Tensor) -> Tensor:
    """1 while the tip is up, else 0: fields (N,) to (N,)."""
    return (tip_height > 1.0).float()
