"""Starting and asking the zygote: the handle that the engine and the trainer's shards hold."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from sandboxes.isolation.channel import Channel, ChannelClosed, ChannelMalformed, ChannelTimeout, channel_pair
from sandboxes.isolation.levels import LEVELS, Isolation
from synth.errors import SynthError

_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SYSTEMROOT")


def clean_environment() -> dict[str, str]:
    """The environment of the zygote: no secrets, one thread for every numeric library."""
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = "1"
    # MKL would choose its routine by a matrix's address, and with it a member's last bits by its place in the
    # population, wherever a network's widths are no multiples of 16. Measured cost: none.
    environment["MKL_CBWR"] = "AUTO,STRICT"
    # The trainer frees and takes the same few megabytes all the time: keep them. Measured gain: a twentieth.
    environment["MALLOC_TRIM_THRESHOLD_"] = str(512 << 20)
    environment["MALLOC_MMAP_THRESHOLD_"] = str(32 << 20)
    environment["MALLOC_TOP_PAD_"] = str(64 << 20)
    environment["PYTHONHASHSEED"] = "0"
    return environment


@dataclass
class Child:
    """A process the zygote forked, and the channel to it."""

    pid: int
    channel: Channel


@dataclass(frozen=True)
class Ending:
    """How a child ended: its exit code (negative: the signal; None while it runs), and why, where we ended it."""

    code: int | None
    reason: str | None = None


class ZygoteClient:
    """Asks a zygote to fork, to kill, and how a child ended."""

    def __init__(self, control: Channel) -> None:
        self.control = control

    def spawn(self, entry: str) -> Child:
        """Fork a `worker` or a `shard`."""
        channel, theirs = channel_pair()
        with theirs:
            self.control.send({"op": "spawn", "entry": entry}, fds=(theirs.fileno(),))
            reply = self.control.receive(60.0)
        return Child(int(reply["pid"]), channel)

    def kill(self, child: Child) -> None:
        """Kill a child with everything in its process group."""
        self._ask({"op": "kill", "pid": child.pid})
        child.channel.close()

    def ending(self, child: Child) -> Ending:
        """How a child ended."""
        status = self._ask({"op": "status", "pid": child.pid, "wait_s": 1.0})
        code, reason = status.get("exitcode"), status.get("reason")
        return Ending(None if code is None else int(code), None if reason is None else str(reason))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The zygote's answer; an empty one when it has ended, and its children with it."""
        with contextlib.suppress(ChannelClosed, ChannelTimeout, ChannelMalformed):
            self.control.send(request)
            return self.control.receive(60.0)
        return {}


class ZygoteProcess(ZygoteClient):
    """Starts the zygote; use `wait_ready` before the first request so that its import overlaps other work.

    Args:
        limit: the highest level of isolation to use.
    """

    def __init__(self, limit: str = LEVELS[-1]) -> None:
        control, theirs = channel_pair()
        super().__init__(control)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sandboxes.isolation.zygote", str(theirs.fileno()), limit],
            env=clean_environment(),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd="/",  # Python would import from the working directory first, and the user's is no business of it
        )
        theirs.close()
        self._found: Isolation | None = None

    def wait_ready(self) -> Isolation:
        """Until torch is imported there: how well its workers are confined.

        Raises:
            SynthError: it did not start; with the process's last words.
        """
        if self._found is not None:
            return self._found
        try:
            self._found = Isolation.from_json(self.control.receive(120.0)["isolation"])
        except (ChannelClosed, ChannelTimeout) as error:
            self.process.kill()
            _, words = self.process.communicate()
            last = words.decode(errors="replace").strip().splitlines()[-1:] or [str(error)]
            raise SynthError(f"the worker process did not start: {last[0]}") from error
        return self._found

    def spawn(self, entry: str) -> Child:
        """See `ZygoteClient.spawn`."""
        self.wait_ready()
        return super().spawn(entry)

    def ended(self) -> bool:
        """Whether it has died."""
        return self.process.poll() is not None

    def close(self) -> None:
        """Hang up; the zygote kills its children and exits."""
        self.control.close()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()
