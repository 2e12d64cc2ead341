"""Language models: one protocol, its backends, and the record of what was asked and what it cost.

Importing this package is cheap: each backend imports its SDK at the first question.
"""

from __future__ import annotations

from synth.llm.base import ChatModel, Completion, Message, SamplingOptions, Usage
from synth.llm.resolve import resolve_model

__all__ = ["ChatModel", "Completion", "Message", "SamplingOptions", "Usage", "resolve_model"]
