"""Stacked networks: P independent multilayer perceptrons whose layers are one `baddbmm` each.

All parameters of a member lie in one row of a flat tensor (P, D), so that the optimiser and the gradient norm are a
few operations whatever the number of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

# Segments start on 64-byte borders: the matrix library may round differently on other alignments, and a member's
# result must not depend on its place in the population.
_ALIGN_FLOATS = 16
# torch computes the last elements of a tensor one by one, and with other roundings than the many before them. So rows
# end on borders of the blocks it takes at a time (two AVX-512 registers at most).
_BLOCK_FLOATS = 32


def _padded(size: int, multiple: int = _ALIGN_FLOATS) -> int:
    return -(-size // multiple) * multiple


class ParameterStack:
    """Flat storage of P members' parameters with a gradient of the same shape; hands out views."""

    def __init__(self, members: int, shapes: Sequence[tuple[int, int]], device: torch.device) -> None:
        """`shapes` are (rows, columns) of each parameter; a bias is (1, columns)."""
        total = _padded(sum(_padded(rows * columns) for rows, columns in shapes), _BLOCK_FLOATS)
        self.flat = torch.zeros(members, total, device=device)
        self.grad = torch.zeros_like(self.flat)
        self.views: list[Tensor] = []
        self.grad_views: list[Tensor] = []
        start = 0
        for rows, columns in shapes:
            size = rows * columns
            self.views.append(self.flat[:, start : start + size].view(members, rows, columns))
            self.grad_views.append(self.grad[:, start : start + size].view(members, rows, columns))
            start += _padded(size)


def layer_shapes(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Weight and bias shapes of a perceptron with these layer sizes."""
    shapes = []
    for inputs, outputs in pairwise(sizes):
        shapes += [(inputs, outputs), (1, outputs)]
    return shapes


def forward(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """P perceptrons with tanh between layers: (P, M, inputs) to (P, M, outputs)."""
    return forward_kept(parameters, x)[-1]


def forward_kept(parameters: Sequence[Tensor], x: Tensor) -> list[Tensor]:
    """Like `forward`, but the input, every hidden activation and the output, as `backward` needs them."""
    kept = [x]
    layers = len(parameters) // 2
    for index in range(layers):
        bias, weight = parameters[2 * index + 1], parameters[2 * index]
        if index == layers - 1:
            x = _affine(bias, x, weight, 1.0)
        elif x.shape[1] * weight.shape[2] % _BLOCK_FLOATS == 0:
            # tanh(z) = 2 sigmoid(2 z) - 1: torch's sigmoid costs a tenth of its tanh, which took a third of all time.
            x = _affine(bias, x, weight, 2.0).sigmoid_().mul_(2.0).sub_(1.0)
        else:  # members end within a block, and of the two only tanh rounds the same everywhere
            x = _affine(bias, x, weight, 1.0).tanh_()
        kept.append(x)
    return kept


def _affine(bias: Tensor, x: Tensor, weight: Tensor, factor: float) -> Tensor:
    """`factor * (x @ weight + bias)` for each member; a member's result is the same bits whatever the others are."""
    if x.shape[0] == 1 and weight.shape[2] == 1:
        # A single matrix-vector product would take another routine than a batch of them, and round differently.
        twice = (tensor.repeat(2, 1, 1) for tensor in (bias, x, weight))
        return torch.baddbmm(*twice, beta=factor, alpha=factor)[:1]
    return torch.baddbmm(bias, x, weight, beta=factor, alpha=factor)


def backward(parameters: Sequence[Tensor], grads: Sequence[Tensor], kept: list[Tensor], grad: Tensor) -> None:
    """Write the gradient of every parameter into `grads`.

    Written out because it is the program's hottest loop: activations are reused in place, which autograd cannot do.

    Args:
        kept: what `forward_kept` returned; destroyed.
        grad: (P, M, outputs), derivative of the loss by the output; destroyed.
    """
    for index in range(len(parameters) // 2 - 1, -1, -1):
        below = kept[index]
        grads[2 * index].copy_(torch.bmm(below.transpose(1, 2), grad))
        grads[2 * index + 1].copy_(grad.sum(dim=1, keepdim=True))
        if index > 0:
            grad = torch.bmm(grad, parameters[2 * index].transpose(1, 2))
            torch.ops.aten.tanh_backward.grad_input(grad, below, grad_input=grad)


def orthogonal_(views: Sequence[Tensor], generators: Sequence[torch.Generator], output_gain: float) -> None:
    """Orthogonal weights (gain sqrt 2, `output_gain` in the last layer), zero biases; one generator per member."""
    weights = views[0::2]
    with torch.no_grad():
        for index, weight in enumerate(weights):
            gain = output_gain if index == len(weights) - 1 else 2.0**0.5
            for member, generator in enumerate(generators):
                rows, columns = weight.shape[1:]
                noise = torch.randn(max(rows, columns), min(rows, columns), generator=generator)
                q, r = torch.linalg.qr(noise)
                q = q * torch.sign(torch.diagonal(r))
                weight[member] = gain * (q if rows >= columns else q.T).to(weight.device)
