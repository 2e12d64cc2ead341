"""The ledger's sums, with prices nobody knows and from many threads."""

from __future__ import annotations

import threading

import pytest

from synth.llm import Completion, Usage
from synth.llm.ledger import Ledger


def answer(prompt: int, completion: int, usd: float | None) -> Completion:
    return Completion("text", Usage(prompt, completion), usd)


def test_sums_by_role_and_together() -> None:
    ledger = Ledger()
    ledger.add("coder", [answer(100, 10, 0.5), answer(50, 20, 0.25)], 2.0)
    ledger.add("evaluator", [answer(7, 3, 0.125)], 1.0)
    found = ledger.summary()
    assert found["calls"] == 2
    assert found["tokens"] == {"prompt": 157, "completion": 33}
    assert found["usd"] == pytest.approx(0.875)
    assert found["seconds"] == pytest.approx(3.0)
    assert found["roles"]["coder"]["completion_tokens"] == 30
    assert found["roles"]["evaluator"]["usd"] == pytest.approx(0.125)


def test_one_unknown_price_makes_the_sum_unknown() -> None:
    ledger = Ledger()
    ledger.add("coder", [answer(1, 1, 0.5), answer(1, 1, None)], 0.0)
    found = ledger.summary()
    assert found["usd"] is None
    assert found["known_usd"] == pytest.approx(0.5)
    assert found["unknown_prices"] == 1


def test_replayed_calls_were_paid_for_by_the_same_run() -> None:
    ledger = Ledger()
    ledger.add("coder", [answer(10, 1, 0.5)], 4.0, replayed=True)
    found = ledger.summary()
    assert (found["calls"], found["replayed"]) == (1, 1)
    assert found["usd"] == pytest.approx(0.5)
    assert found["tokens"]["prompt"] == 10


def test_empty_ledger() -> None:
    found = Ledger().summary()
    assert (found["calls"], found["usd"], found["roles"]) == (0, 0.0, {})


def test_many_threads_lose_nothing() -> None:
    ledger = Ledger()
    threads = [
        threading.Thread(target=lambda: [ledger.add("coder", [answer(1, 2, 0.5)], 0.0) for _ in range(500)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = ledger.summary()
    assert found["calls"] == 4000
    assert found["tokens"] == {"prompt": 4000, "completion": 8000}
    assert found["usd"] == pytest.approx(2000.0)
