"""The seam to language models: messages in, completions out. Every backend and every wrapper implements `ChatModel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Usage:
    """Tokens of one completion (or of one request divided over its completions) as the provider counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class Completion:
    """One answer. `cost_usd` is None when the price is unknown, 0.0 for local models."""

    text: str
    usage: Usage
    cost_usd: float | None
    finish_reason: str | None = None


@dataclass(frozen=True)
class SamplingOptions:
    """What may be asked of a model besides the messages.

    `grammar` (GBNF) and `json_schema` constrain the answer; a backend that cannot do it ignores `grammar` only if
    its `supports_grammar` is False, so callers look there first. `prefill` is the beginning of the answer, already
    written: a backend with `supports_prefill` continues it and returns only what follows.
    """

    temperature: float = 1.0
    max_tokens: int | None = None
    seed: int | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    prefill: str | None = None


class ChatModel(Protocol):
    """A language model.

    Raises:
        synth.errors.ModelError: unreachable, refused, or without weights; one line that says what to do.
    """

    name: str
    supports_grammar: bool
    supports_prefill: bool

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """`n` independent answers to the same messages."""

    def close(self) -> None:
        """Release what the backend holds (a server process, connections)."""
