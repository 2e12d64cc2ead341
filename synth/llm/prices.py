"""Prices of models, from the table that litellm ships; nothing is fetched, litellm itself is not imported."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from synth.llm.base import Usage

_TABLE = "model_prices_and_context_window_backup.json"


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    """Model name to prices; empty when litellm or its table is not there."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin).parent / _TABLE
    if not path.is_file():
        return {}
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return table


def cost_of(model: str, usage: Usage) -> float | None:
    """USD for these tokens at list price, without discounts for cached prompts; None when it is unknown.

    Args:
        model: full name, `PROVIDER/NAME`.
        usage: what was used.
    """
    table = _table()
    entry = table.get(model)
    prefix, _, rest = model.partition("/")
    if entry is None and isinstance(table.get(rest), dict) and table[rest].get("litellm_provider") == prefix:
        entry = table[rest]
    if not isinstance(entry, dict):
        return None
    prompt, completion = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if prompt is None or completion is None:
        return None
    return float(prompt) * usage.prompt_tokens + float(completion) * usage.completion_tokens
