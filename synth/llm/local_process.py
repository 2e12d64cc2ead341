"""Starting, watching and ending one process of `synth.llm.local_server`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from synth.errors import ModelError

SLOTS = 2  # prompts kept in memory: the Coder's task alone, and with what the search has found
CONTEXT = 4096  # tokens for each slot
_START_S = 180.0
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SYSTEMROOT")


class ServerProcess:
    """A running server with its model loaded; `address` is where it listens.

    Args:
        weights: a GGUF file.
        key: what requests must show.

    Raises:
        ModelError: it did not start; quotes the last line of its log.
    """

    def __init__(self, weights: Path, key: str) -> None:
        self._log, path = tempfile.mkstemp(prefix="synth-model-")
        os.unlink(path)  # the open file is enough, and leaves nothing behind
        self._process = subprocess.Popen(
            [sys.executable, "-m", "synth.llm.local_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            env=_environment(),
        )
        settings = {"model": str(weights), "key": key, "slots": SLOTS, "context": CONTEXT, "parent": os.getpid()}
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()
            self.address = str(json.loads(self._first_line())["address"])
        except (OSError, ValueError, KeyError) as error:
            self._end()
            words = self.last_words()
            os.close(self._log)
            raise ModelError(f"the local model {weights.name} could not be loaded: {words}") from error
        except BaseException:  # Ctrl-C while the model loads
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; waits a moment for a process that is about to end."""
        try:
            return self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return None

    def last_words(self) -> str:
        """The last line of its log that says something."""
        size = os.fstat(self._log).st_size
        tail = os.pread(self._log, 8192, max(0, size - 8192)).decode(errors="replace")
        lines = [line.strip() for line in tail.splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"

    def close(self) -> None:
        """End it; it is gone when this returns."""
        self._end()
        os.close(self._log)

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):  # it has ended before
            self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _first_line(self) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if select.select([self._process.stdout], [], [], 0.5)[0]:
                return self._process.stdout.readline()
        raise OSError("no sign of life")


def _environment() -> dict[str, str]:
    """No keys of providers: the file it reads may be anybody's."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
