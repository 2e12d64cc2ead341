"""What calls to models have cost: calls, tokens, money, seconds; for each role and together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from synth.llm.base import Completion


@dataclass
class Account:
    """Sums over calls."""

    calls: int = 0
    replayed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    unknown_prices: int = 0  # answers whose price nobody knows
    seconds: float = 0.0


class Ledger:
    """Adds up completions; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._roles: dict[str, Account] = {}

    def add(self, role: str, completions: Sequence[Completion], seconds: float, replayed: bool = False) -> None:
        """Count one call. Replayed answers were paid for before: they count as calls only."""
        with self._lock:
            account = self._roles.setdefault(role, Account())
            account.calls += 1
            if replayed:
                account.replayed += 1
                return
            account.seconds += seconds
            for completion in completions:
                account.prompt_tokens += completion.usage.prompt_tokens
                account.completion_tokens += completion.usage.completion_tokens
                if completion.cost_usd is None:
                    account.unknown_prices += 1
                else:
                    account.usd += completion.cost_usd

    def summary(self) -> dict[str, Any]:
        """`{calls, tokens{prompt, completion}, usd, roles}`; `usd` is None when any price is unknown."""
        with self._lock:
            accounts = dict(self._roles)
        unknown = sum(a.unknown_prices for a in accounts.values())
        return {
            "calls": sum(a.calls for a in accounts.values()),
            "replayed": sum(a.replayed for a in accounts.values()),
            "tokens": {
                "prompt": sum(a.prompt_tokens for a in accounts.values()),
                "completion": sum(a.completion_tokens for a in accounts.values()),
            },
            "usd": None if unknown else round(sum(a.usd for a in accounts.values()), 6),
            "seconds": round(sum(a.seconds for a in accounts.values()), 3),
            "roles": {role: vars(account).copy() for role, account in accounts.items()},
        }
