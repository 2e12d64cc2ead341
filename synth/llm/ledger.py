"""What calls to models have cost: calls, tokens, money, seconds; for each role and together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from synth.llm.base import Completion


@dataclass
class Account:
    """Sums over calls. `usd` leaves out the answers whose price nobody knows; `unknown_prices` counts those."""

    calls: int = 0
    replayed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    unknown_prices: int = 0
    seconds: float = 0.0


class Ledger:
    """Adds up completions; safe to use from several threads.

    Replayed calls count like the others, for the run has paid for them: a run that was resumed ends with the sums of
    one that was not. `replayed` says how many they are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._roles: dict[str, Account] = {}

    def add(self, role: str, completions: Sequence[Completion], seconds: float, replayed: bool = False) -> None:
        """Count one call: its answers, and how many seconds the model took."""
        with self._lock:
            account = self._roles.setdefault(role, Account())
            account.calls += 1
            account.replayed += replayed
            account.seconds += seconds
            for completion in completions:
                account.prompt_tokens += completion.usage.prompt_tokens
                account.completion_tokens += completion.usage.completion_tokens
                if completion.cost_usd is None:
                    account.unknown_prices += 1
                else:
                    account.usd += completion.cost_usd

    def summary(self) -> dict[str, Any]:
        """`{calls, replayed, tokens{prompt, completion}, usd, known_usd, unknown_prices, seconds, roles}`.

        `usd` is None when any price is unknown; `known_usd` is the sum of the others.
        """
        with self._lock:
            roles = {role: asdict(account) for role, account in self._roles.items()}
        unknown = sum(a["unknown_prices"] for a in roles.values())
        usd = round(sum(a["usd"] for a in roles.values()), 6)
        return {
            "calls": sum(a["calls"] for a in roles.values()),
            "replayed": sum(a["replayed"] for a in roles.values()),
            "tokens": {
                "prompt": sum(a["prompt_tokens"] for a in roles.values()),
                "completion": sum(a["completion_tokens"] for a in roles.values()),
            },
            "usd": None if unknown else usd,
            "known_usd": usd,
            "unknown_prices": unknown,
            "seconds": round(sum(a["seconds"] for a in roles.values()), 3),
            "roles": roles,
        }
