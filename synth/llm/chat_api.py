"""Asking in OpenAI's form, whichever SDK carries the request: several answers, retries, what a server does not know."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from synth.errors import ModelError
from synth.llm.base import Completion, Message, SamplingOptions, Usage
from synth.llm.faults import (
    ATTEMPTS,
    PartialAnswersError,
    Sleep,
    UnusableAnswerError,
    call_with_retries,
    refused_parameter,
)

PARALLEL = 8
TIMEOUT_S = 300.0
_LOG = logging.getLogger(__name__)
# What a server may do without. Where it refuses one of these by name, the request is made again without it.
_OPTIONAL = ("n", "seed", "temperature", "response_format", "max_tokens", "max_completion_tokens")


class Create(Protocol):
    """Makes one request: `openai`'s `chat.completions.create` or `litellm.completion`."""

    def __call__(self, **request: Any) -> Any:
        """A chat completion, or one of the SDK's exceptions."""


class ChatApi:
    """One model behind one server; safe to use from several threads.

    Args:
        name: the model's, for messages.
        create: makes one request.
        price: USD for a usage, None when unknown.
        advice: what to do when the key is refused, such as the variable to set.
        secret: never shown in a message.
        sleep: waits between attempts.
        attempts: most requests for one answer.
        parallel: most requests at one time.
        takes_n: whether to ask for several answers in one request first, which pays for the prompt once.
    """

    def __init__(
        self,
        name: str,
        create: Create,
        price: Callable[[Usage], float | None],
        *,
        advice: str = "set the provider's key in the environment",
        secret: str | None = None,
        sleep: Sleep = time.sleep,
        attempts: int = ATTEMPTS,
        parallel: int = PARALLEL,
        takes_n: bool = True,
    ) -> None:
        self.name = name
        self._create, self._price, self._advice, self._secret = create, price, advice, secret
        self._sleep, self._attempts, self._parallel, self._takes_n = sleep, attempts, parallel, takes_n
        self._refused: set[str] = set()

    def ask(self, request: dict[str, Any], n: int) -> list[Completion]:
        """`n` answers: those that one request brings, the others one by one, each with a seed of its own.

        Raises:
            PartialAnswersError: some came, some did not.
            ModelError: none came.
        """
        answers: list[Completion] = []
        if n > 1 and self._takes_n:
            answers = self._request({**request, "n": n})[:n]
            # A server that ignores `n` once will do so again.
            self._takes_n = len(answers) == n

        def single(index: int) -> Completion:
            seeded = {**request, "seed": (request["seed"] + index) & 0x7FFFFFFF} if "seed" in request else request
            return self._request(seeded)[0]

        return completions_of(side_by_side(single, range(len(answers), n), self._parallel), answers)

    def _request(self, request: dict[str, Any]) -> list[Completion]:
        """The answers of one request; it is made again without what the server refuses."""
        while True:
            try:
                return call_with_retries(
                    lambda: self._once(self._fitted(request)), self._line, self._sleep, self._attempts
                )
            except ModelError as error:
                fault = error.__cause__
                fitted = [name for name in _OPTIONAL if name in self._fitted(request)]
                name = refused_parameter(fault, fitted) if fault is not None else None
                if name is None:
                    raise
                _LOG.warning("the model %s does not take '%s'; asking without it", self.name, name)
                self._refused.add(name)
                self._takes_n &= name != "n"

    def _once(self, request: dict[str, Any]) -> list[Completion]:
        return to_completions(self._create(**request), self._price)

    def _fitted(self, request: dict[str, Any]) -> dict[str, Any]:
        """The request without what the server has refused; a limit on tokens has two names."""
        fitted = {key: value for key, value in request.items() if key not in self._refused}
        if "max_tokens" in request and "max_tokens" in self._refused - {"max_completion_tokens"}:
            fitted["max_completion_tokens"] = request["max_tokens"]
        return {key: value for key, value in fitted.items() if key not in self._refused}

    def _line(self, reason: str) -> str:
        """The line for the user."""
        advice = f"; {self._advice}" if "(401)" in reason else ""
        if "did not answer" in reason:
            advice = "; check the address and the network, or try again later"
        line = f"the model {self.name} {reason}{advice}"
        return line.replace(self._secret, "***") if self._secret else line


def build_request(model: str, messages: Sequence[Message], options: SamplingOptions) -> dict[str, Any]:
    """The request in OpenAI's form, for one answer and without a backend's own fields."""
    request: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in messages],
        "temperature": options.temperature,
    }
    if options.max_tokens is not None:
        request["max_tokens"] = options.max_tokens
    if options.seed is not None:
        request["seed"] = options.seed & 0x7FFFFFFF
    if options.json_schema is not None:
        schema = {"name": "answer", "strict": True, "schema": options.json_schema}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    return request


def to_completions(answer: Any, price: Callable[[Usage], float | None]) -> list[Completion]:
    """The completions in a reply of OpenAI's form; a missing text is an empty text, not an error.

    The tokens of the request are divided over its completions, so that their sums stay exact.

    Raises:
        UnusableAnswerError: this is no chat completion.
    """
    fault = getattr(answer, "error", None)
    if isinstance(fault, dict):
        code = fault.get("code")
        raise UnusableAnswerError(str(fault.get("message") or fault), code if isinstance(code, int) else None)
    if not hasattr(answer, "choices"):
        raise UnusableAnswerError("the address answers, but not with a chat completion; does it end in /v1?")
    choices = answer.choices or [None]
    counted = getattr(answer, "usage", None)
    prompt = _split(getattr(counted, "prompt_tokens", None), len(choices))
    completion = _split(getattr(counted, "completion_tokens", None), len(choices))
    known = bool(sum(prompt) + sum(completion))
    found = []
    for index, choice in enumerate(choices):
        usage = Usage(prompt[index], completion[index])
        text = getattr(getattr(choice, "message", None), "content", None) or ""
        # Tokens that were not counted are not free, unless the model is.
        cost = price(usage) if known or price(Usage(1, 1)) == 0.0 else None
        found.append(Completion(text, usage, cost, _reason(choice)))
    return found


def _reason(choice: Any) -> str | None:
    reason = getattr(choice, "finish_reason", None)
    return None if reason is None else str(reason)


def _split(total: Any, parts: int) -> list[int]:
    """A whole number divided into parts that sum to it."""
    each, over = divmod(int(total or 0), parts)
    return [each + (index < over) for index in range(parts)]


@dataclass
class Outcome:
    """What a call gave: a completion or an exception. As a context it takes the exception out of its block."""

    completion: Completion | None = None
    error: Exception | None = None

    def __enter__(self) -> Outcome:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self.error = error
        return isinstance(error, Exception)


def side_by_side(function: Callable[[int], Completion], indices: range, width: int) -> list[Outcome]:
    """Outcomes in the order of the indices; at most `width` calls at one time.

    The threads are daemons and the wait is in the caller's thread, so that Ctrl-C ends the program at once.
    """
    outcomes = {index: Outcome() for index in indices}
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in indices:
        waiting.put(index)

    def work() -> None:
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            with outcomes[index] as outcome:
                outcome.completion = function(index)
            done.put(index)

    if len(indices) == 1:
        work()
    else:
        for _ in range(min(width, len(indices))):
            threading.Thread(target=work, daemon=True).start()
    for _ in indices:
        done.get()
    return list(outcomes.values())


def completions_of(outcomes: Sequence[Outcome], before: Sequence[Completion] = ()) -> list[Completion]:
    """The answers, after those that came `before`.

    Raises:
        PartialAnswersError: some came, some did not.
        ModelError: none came.
    """
    answers = [*before, *(o.completion for o in outcomes if o.completion is not None)]
    error = next((o.error for o in outcomes if o.error is not None), None)
    if error is None:
        return answers
    if not answers or not isinstance(error, ModelError):
        raise error
    count = len(before) + len(outcomes)
    raise PartialAnswersError(f"{error} ({len(answers)} of {count} answers came)", answers) from error
