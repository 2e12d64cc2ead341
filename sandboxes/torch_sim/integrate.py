"""Numerical integration shared by simulators whose motion is given as a time derivative."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def rk4(derivative: Callable[[Tensor], Tensor], state: Tensor, dt: float) -> Tensor:
    """One classical Runge-Kutta step of fourth order.

    Args:
        derivative: maps a state (B, state_size) to its time derivative, same shape.
        state: (B, state_size). dt: step in s.

    Returns:
        The state `dt` later, same shape and dtype.
    """
    k1 = derivative(state)
    k2 = derivative(state + dt / 2.0 * k1)
    k3 = derivative(state + dt / 2.0 * k2)
    k4 = derivative(state + dt * k3)
    return state + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
