"""The process that serves a local model: llama.cpp on loopback, speaking OpenAI's protocol.

Started by `synth.llm.local`. Its settings and a one-time key come as one JSON line on standard input, so that nothing
is seen in the process list; the address goes out as one JSON line on standard output. It ends when its input closes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from sandboxes.isolation.process import die_with_parent


def build(settings: dict[str, Any]) -> Any:
    """llama.cpp's server for these settings."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_parallel = 1
    params.n_ctx = settings["context"]
    params.n_predict = -1
    params.cont_batching = True
    params.cache_prompt = True
    params.prefill_assistant = True
    params.warmup = False
    params.n_gpu_layers = settings["gpu_layers"]
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.verbosity = -1
    return xllamacpp.Server(params)


def main() -> None:
    """Read settings, serve, say where, wait for the end."""
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what llama.cpp prints goes to the log with the rest
    settings = json.loads(sys.stdin.readline())
    server = build(settings)
    out.write(json.dumps({"address": server.listening_address}) + "\n")
    out.flush()
    sys.stdin.read()  # until the engine closes it, or ends
    os._exit(0)  # llama.cpp's threads need no farewell


if __name__ == "__main__":
    main()
