"""Faults of model servers: which are tried again, how long to wait, and the one line for those that are not.

litellm's exceptions are subclasses of the `openai` SDK's, so that one set of rules serves both.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeVar

from synth.errors import ModelError
from synth.llm.base import Completion

T = TypeVar("T")
ATTEMPTS = 6
LONGEST_PAUSE_S = 60.0
LONGEST_WAIT_S = 180.0  # all pauses of one request together
_RETRIED_STATUS = frozenset({408, 409, 425, 429})
_CONTEXT_WORDS = ("context_length", "context length", "context window", "context size", "prompt is too long")
_UNSUPPORTED = re.compile(r"support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|extra", re.IGNORECASE)


class Sleep(Protocol):
    """Waits; replaced in tests."""

    def __call__(self, seconds: float, /) -> None:
        """Wait this long."""


class PartialAnswersError(ModelError):
    """Some of the answers asked for came, the others did not; `answers` are paid for and worth keeping."""

    def __init__(self, message: str, answers: Sequence[Completion]) -> None:
        super().__init__(message)
        self.answers = list(answers)


class UnusableAnswerError(Exception):
    """The server answered with something that is no chat completion; `code` as in its error, when it gives one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.message, self.status_code = message, code


def call_with_retries(call: Callable[[], T], explain_to: Callable[[str], str], sleep: Sleep, attempts: int) -> T:
    """Call until it works or trying again is of no use.

    Rate limits, server errors, time-outs and broken connections are tried again, after what the server asks for in
    `Retry-After`, else after a growing, jittered pause. Authentication and context-length errors never are.

    Args:
        call: makes one request.
        explain_to: turns a reason into the line for the user, which names the model.
        sleep: waits some seconds.
        attempts: most requests made.

    Raises:
        ModelError: one line that names the model and what to do.
    """
    waited = 0.0
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except _fault_kinds() as error:
            if not _worth_retrying(error):
                raise ModelError(explain_to(f"refused the request: {explain(error)}")) from error
            wait = pause(error, attempt)
            if attempt == attempts:
                times = "the request" if attempts == 1 else f"{attempts} attempts"
                raise ModelError(explain_to(f"did not answer {times}: {explain(error)}")) from error
            if waited + wait > LONGEST_WAIT_S:
                asked = f"the server asks to wait {wait:.0f} s" if wait > LONGEST_PAUSE_S else f"waited {waited:.0f} s"
                raise ModelError(explain_to(f"does not answer ({asked}): {explain(error)}")) from error
            waited += wait
            sleep(wait)
    raise AssertionError("unreachable")


def pause(error: BaseException, attempt: int) -> float:
    """Seconds to wait after this fault."""
    asked = _retry_after(error)
    if asked is not None:
        return asked
    return min(LONGEST_PAUSE_S, 0.5 * 2.0**attempt) * random.Random(attempt).uniform(0.75, 1.25)


def explain(error: BaseException) -> str:
    """The fault in one line: what it means and what the server said."""
    status = _status(error)
    words = " ".join(str(getattr(error, "message", None) or error).split())[:300]
    if status == 401:
        return "the key was not accepted (401)"
    if is_context_length(error):
        return f"the conversation is too long for it ({words})"
    if status == 404:
        return f"there is no such model or address ({words})"
    return f"{status}: {words}" if status else f"{type(error).__name__}: {words}"


def refused_parameter(error: BaseException, names: Sequence[str]) -> str | None:
    """The one of these request parameters that the server does not know or support, if that is the fault."""
    if _status(error) not in (400, 422) or is_context_length(error):
        return None
    words = str(error)
    if not _UNSUPPORTED.search(words):
        return None
    named = getattr(error, "param", None)
    if isinstance(named, str) and named.split(".")[0] in names:
        return named.split(".")[0]
    return next((name for name in names if re.search(rf"['\"`]{name}['\"`.]", words)), None)


def is_context_length(error: BaseException) -> bool:
    """Whether the conversation was longer than the model can read."""
    text = f"{getattr(error, 'code', '')} {error}".lower()
    return any(words in text for words in _CONTEXT_WORDS)


def _fault_kinds() -> tuple[type[BaseException], ...]:
    """What counts as the server's or the connection's fault; any other exception is ours and passes through."""
    import httpx
    import openai

    return (
        UnusableAnswerError,
        openai.OpenAIError,
        httpx.HTTPError,
        ConnectionError,
        TimeoutError,
        json.JSONDecodeError,
    )


def _worth_retrying(error: BaseException) -> bool:
    status = _status(error)
    if is_context_length(error) or "insufficient_quota" in f"{getattr(error, 'code', '')} {error}":
        return False
    if isinstance(error, UnusableAnswerError) and status is None:
        return False
    return status is None or status in _RETRIED_STATUS or status >= 500


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _retry_after(error: BaseException) -> float | None:
    """Seconds the server asks to wait: `Retry-After` holds a number of seconds or a date."""
    response = getattr(error, "response", None)
    for headers in (getattr(response, "headers", None), getattr(error, "litellm_response_headers", None)):
        value = headers.get("retry-after") if headers is not None else None
        if value is None:
            continue
        try:
            return max(0.0, float(value))
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return None
    return None
