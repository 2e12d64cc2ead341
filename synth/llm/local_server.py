"""The process that serves a local model: llama.cpp on loopback, speaking OpenAI's protocol.

Started by `synth.llm.local_process`. Its settings and a one-time key come as one JSON line on standard input, so that
nothing is seen in the process list; the address goes out as one JSON line on standard output. It ends when its input
closes or its parent is gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any


def build(settings: dict[str, Any]) -> Any:
    """llama.cpp's server for these settings."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["context"] * settings["slots"]
    params.n_predict = -1
    params.prefill_assistant = True
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.verbosity = -1
    # What is remembered of earlier prompts is decided by the caller alone, or answers would depend on it.
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.n_ctx_checkpoints = 0
    params.kv_unified = False
    return xllamacpp.Server(params)


def main() -> None:
    """Read settings, serve, say where, wait for the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what llama.cpp prints goes to the log with the rest
    settings = json.loads(sys.stdin.buffer.readline())
    server = build(settings)
    out.write(json.dumps({"address": server.listening_address}) + "\n")
    out.flush()
    # Linux could end this process with the *thread* that started it, which may end long before the engine; so ask.
    while os.getppid() == settings["parent"] and not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    os._exit(0)  # llama.cpp's threads need no farewell


if __name__ == "__main__":
    main()
