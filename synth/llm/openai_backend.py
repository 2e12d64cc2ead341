"""OpenAI's protocol through its SDK: OpenAI itself, and every server that speaks the same (vLLM, Ollama, llama.cpp)."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from synth.llm.base import Completion, Message, SamplingOptions, Usage
from synth.llm.chat_api import PARALLEL, TIMEOUT_S, ChatApi, build_request
from synth.llm.faults import ATTEMPTS, Sleep
from synth.llm.prices import cost_of


class OpenAIModel:
    """A model behind an OpenAI-compatible server; safe to use from several threads.

    Args:
        model: the server's name for it.
        api_base: the server's address up to `/v1`; OpenAI's own when None.
        api_key: None for a server that asks for none.
        name: full name for records and messages.
        llama_cpp: the server is llama.cpp's: it takes a grammar and continues a prefilled answer.
        free: answers cost nothing. Set for a server on this machine whose model is on no price list.
        attempts: most requests for one answer.
        parallel: most requests at one time.
        timeout_s: longest silence of the server, in seconds.
        sleep: waits between attempts.
    """

    def __init__(
        self,
        model: str,
        api_base: str | None = None,
        api_key: str | None = None,
        *,
        name: str | None = None,
        llama_cpp: bool = False,
        free: bool = False,
        attempts: int = ATTEMPTS,
        parallel: int = PARALLEL,
        timeout_s: float = TIMEOUT_S,
        sleep: Sleep = time.sleep,
    ) -> None:
        self.model, self.name = model, name or f"openai/{model}"
        self.supports_grammar = self.supports_prefill = llama_cpp
        self._api_base, self._api_key, self._timeout_s = api_base, api_key, timeout_s
        self._free = free or (_on_this_machine(api_base) and cost_of(f"openai/{model}", Usage()) is None)
        self._client: Any = None
        self._lock = threading.Lock()
        # llama.cpp reads the prompt once in either case, and one request for each answer gives each a seed of its own.
        self._api = ChatApi(
            self.name,
            lambda **request: self._sdk().chat.completions.create(**request),
            self._price,
            advice="set OPENAI_API_KEY to a valid key",
            secret=api_key,
            sleep=sleep,
            attempts=attempts,
            parallel=parallel,
            takes_n=not llama_cpp,
        )

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`."""
        return self._without_prefill(self._api.ask(self._request(messages, options), n), options)

    def ask_llama(
        self, messages: Sequence[Message], options: SamplingOptions, fields: dict[str, Any]
    ) -> list[Completion]:
        """One answer of llama.cpp's server, with request fields that it alone knows."""
        request = self._request(messages, options)
        request["extra_body"] = {**request.get("extra_body", {}), **fields}
        return self._without_prefill(self._api.ask(request, 1), options)

    def close(self) -> None:
        """See `ChatModel.close`."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _sdk(self) -> Any:
        """The SDK's client, made at first use: importing it takes a second."""
        with self._lock:
            if self._client is None:
                import openai

                self._client = openai.OpenAI(
                    api_key=self._api_key or "none", base_url=self._api_base, timeout=self._timeout_s, max_retries=0
                )
            return self._client

    def _request(self, messages: Sequence[Message], options: SamplingOptions) -> dict[str, Any]:
        request = build_request(self.model, messages, options)
        if self.supports_prefill and options.prefill:
            request["messages"].append({"role": "assistant", "content": options.prefill})
        if self.supports_grammar and options.grammar:
            request["extra_body"] = {"grammar": options.grammar}
        return request

    def _without_prefill(self, answers: list[Completion], options: SamplingOptions) -> list[Completion]:
        """What follows the prefill only; llama.cpp gives it back with the answer, at least some versions do."""
        if not (self.supports_prefill and options.prefill):
            return answers
        return [replace(answer, text=answer.text.removeprefix(options.prefill)) for answer in answers]

    def _price(self, usage: Usage) -> float | None:
        return 0.0 if self._free else cost_of(f"openai/{self.model}", usage)


def _on_this_machine(address: str | None) -> bool:
    host = urlsplit(address).hostname if address else None
    try:
        return host == "localhost" or (host is not None and ipaddress.ip_address(host).is_loopback)
    except ValueError:
        return False
