"""Search strategies by name; each is one small module."""

from synth.errors import SynthError
from synth.strategies.base import Budget, Services, Strategy, best_of
from synth.strategies.eureka import Eureka

STRATEGIES = {"eureka": Eureka}


def make_strategy(name: str) -> Strategy:
    """The strategy called `name`; SynthError when there is none."""
    if name not in STRATEGIES:
        raise SynthError(f"unknown strategy '{name}'; there is {', '.join(STRATEGIES)}")
    return STRATEGIES[name]()


__all__ = ["STRATEGIES", "Budget", "Services", "Strategy", "best_of", "make_strategy"]
