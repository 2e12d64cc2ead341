"""Every other provider, through litellm: imported at the first question, for it takes seconds; nothing is fetched."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from synth.llm.base import Completion, Message, SamplingOptions, Usage
from synth.llm.chat_api import PARALLEL, TIMEOUT_S, ChatApi, build_request
from synth.llm.faults import ATTEMPTS, Sleep
from synth.llm.prices import cost_of
from synth.llm.providers import provider_of


class LiteLLMModel:
    """A model by its litellm name, such as `anthropic/claude-sonnet-4-5` or `gemini/gemini-2.5-pro`.

    Args:
        model: litellm's name for it, which begins with the provider.
        api_base: another address for the provider.
        api_key: None when litellm shall find it in the environment.
        attempts: most requests for one answer.
        parallel: most requests at one time.
        timeout_s: longest silence of the server, in seconds.
        sleep: waits between attempts.
    """

    supports_grammar = False
    supports_prefill = False

    def __init__(
        self,
        model: str,
        api_base: str | None = None,
        api_key: str | None = None,
        *,
        attempts: int = ATTEMPTS,
        parallel: int = PARALLEL,
        timeout_s: float = TIMEOUT_S,
        sleep: Sleep = time.sleep,
    ) -> None:
        self.model = self.name = model
        # Only what litellm itself would send: nothing is tried twice behind our back, and a provider without seeds,
        # schemas or several answers still answers.
        fixed = {"timeout": timeout_s, "num_retries": 0, "max_retries": 0, "drop_params": True}
        given = {"api_base": api_base, "api_key": api_key}
        self._fields = {**fixed, **{name: value for name, value in given.items() if value is not None}}
        provider = provider_of(model)
        variable = provider.variable if provider is not None else "the provider's variable"
        self._api = ChatApi(
            self.name,
            lambda **request: _litellm().completion(**request),
            self._price,
            advice=f"set {variable} to a valid key",
            secret=api_key,
            sleep=sleep,
            attempts=attempts,
            parallel=parallel,
        )

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`."""
        return self._api.ask({**build_request(self.model, messages, options), **self._fields}, n)

    def close(self) -> None:
        """See `ChatModel.close`."""

    def _price(self, usage: Usage) -> float | None:
        return cost_of(self.model, usage)


_IMPORT = threading.Lock()


def _litellm() -> Any:
    """litellm, told to fetch no price list, to print nothing and to report to nobody."""
    with _IMPORT:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        import litellm

        litellm.suppress_debug_info = True
        litellm.telemetry = False
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        return litellm
