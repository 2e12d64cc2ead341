"""Starting and asking the zygote: the handle that the engine and the trainer's shards hold."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

from sandboxes.isolation.channel import Channel, ChannelClosed, ChannelMalformed, ChannelTimeout, channel_pair

_PR_SET_PDEATHSIG = 1
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SYSTEMROOT")


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere the closing of the control socket must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def clean_environment() -> dict[str, str]:
    """The environment of the zygote: no secrets, one thread for every numeric library."""
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = "1"
    # MKL may otherwise choose another kernel for another alignment, and with it other last bits.
    environment["MKL_CBWR"] = "AUTO,STRICT"
    environment["PYTHONHASHSEED"] = "0"
    return environment


@dataclass
class Child:
    """A process the zygote forked, and the channel to it."""

    pid: int
    channel: Channel


class ZygoteClient:
    """Asks a zygote to fork, to kill, and how a child ended."""

    def __init__(self, control: Channel) -> None:
        self.control = control

    def spawn(self, entry: str) -> Child:
        """Fork a `worker` or a `shard`."""
        channel, theirs = channel_pair()
        self.control.send({"op": "spawn", "entry": entry}, fds=(theirs.fileno(),))
        reply = self.control.receive(60.0)
        theirs.close()
        return Child(int(reply["pid"]), channel)

    def kill(self, child: Child) -> None:
        """Kill a child with everything in its process group."""
        with contextlib.suppress(ChannelClosed, ChannelTimeout, ChannelMalformed):
            self.control.send({"op": "kill", "pid": child.pid})
            self.control.receive(60.0)
        child.channel.close()

    def exit_code(self, child: Child) -> int | None:
        """The exit code of a child that ended (negative: the signal), None while it runs."""
        self.control.send({"op": "status", "pid": child.pid, "wait_s": 1.0})
        code = self.control.receive(60.0).get("exitcode")
        return None if code is None else int(code)


class ZygoteProcess(ZygoteClient):
    """Starts the zygote; use `wait_ready` before the first request so that its import overlaps other work."""

    def __init__(self) -> None:
        control, theirs = channel_pair()
        super().__init__(control)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sandboxes.isolation.zygote", str(theirs.fileno())],
            env=clean_environment(),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()
        self._ready = False

    def wait_ready(self) -> None:
        """Until torch is imported there. RuntimeError with the process's last words when it did not start."""
        if self._ready:
            return
        try:
            self.control.receive(120.0)
        except (ChannelClosed, ChannelTimeout) as error:
            self.process.kill()
            _, words = self.process.communicate()
            last = words.decode(errors="replace").strip().splitlines()[-1:] or [str(error)]
            raise RuntimeError(f"the worker process did not start: {last[0]}") from error
        self._ready = True

    def spawn(self, entry: str) -> Child:
        """See `ZygoteClient.spawn`."""
        self.wait_ready()
        return super().spawn(entry)

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


def client_from_socket(sock: socket.socket) -> ZygoteClient:
    """A client on a control connection that was handed to this process."""
    return ZygoteClient(Channel(sock))
