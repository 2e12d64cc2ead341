"""A process that has imported torch once and forks reward workers and trainer shards from there.

Forking takes milliseconds where a fresh interpreter takes seconds. The zygote starts with an environment that holds
no secret and stays single-threaded, so that its children are safe to fork. When its first control connection closes
(the engine ended, however it ended) it kills every child it made and exits.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from typing import Any

from sandboxes.isolation.channel import Channel, ChannelClosed, ChannelMalformed, ChannelTimeout
from sandboxes.isolation.process import die_with_parent

ENTRIES = ("worker", "shard")


class Zygote:
    """The loop that answers spawn, status and kill requests on its control connections."""

    def __init__(self, control: Channel) -> None:
        from multiprocess import get_context

        self.context = get_context("fork")
        self.pid = os.getpid()
        self.primary = control
        self.controls = [control]
        self.children: dict[int, Any] = {}
        self.owners: dict[int, Channel] = {}  # of each child, the connection that asked for it

    def serve(self) -> None:
        """Until the engine hangs up."""
        while True:
            ready, _, _ = select.select(self.controls, [], [], 1.0)
            self._reap()
            for control in ready:
                try:
                    message = control.receive(10.0)
                    control.send(self._answer(message, control))
                except (ChannelClosed, ChannelTimeout, ChannelMalformed):
                    if control is self.primary:
                        return
                    self._drop(control)

    def end(self) -> None:
        """Kill what is left."""
        for pid in list(self.children):
            self._kill(pid)

    def _drop(self, control: Channel) -> None:
        """A shard ended: so do its workers, one of which may be in an endless computation."""
        self.controls.remove(control)
        control.close()
        for pid in [pid for pid, owner in self.owners.items() if owner is control]:
            self._kill(pid)

    def _answer(self, message: dict[str, Any], control: Channel) -> dict[str, Any]:
        op, pid = message.get("op"), int(message.get("pid", 0))
        if op == "spawn" and message.get("entry") in ENTRIES:
            new = self._spawn(message["entry"], control.take_fds())
            self.owners[new] = control
            return {"pid": new}
        if op == "kill":
            self._kill(pid)
            return {"ok": True}
        if op == "status":
            child = self.children.get(pid)
            if child is not None:
                child.join(float(message.get("wait_s", 0.0)))
            return {"exitcode": None if child is None else child.exitcode}
        return {"error": f"unknown request {op!r}"}

    def _spawn(self, entry: str, fds: list[int]) -> int:
        control_of_child = None
        if entry == "shard":  # a shard asks for its own workers
            ours, control_of_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            self.controls.append(Channel(ours, accept_fds=True))
            fds = [*fds, control_of_child.fileno()]
        child = self.context.Process(target=self._run_child, args=(entry, fds), daemon=False)
        child.start()
        self.children[child.pid] = child
        if control_of_child is not None:
            control_of_child.close()
            fds = fds[:-1]
        for fd in fds:
            os.close(fd)
        return int(child.pid)

    def _run_child(self, entry: str, fds: list[int]) -> None:
        os.setsid()  # a group of its own, so that one kill takes all it started
        die_with_parent(self.pid)
        _close_all_but(fds)
        if entry == "worker":
            from sandboxes.isolation import worker

            worker.main(Channel(socket.socket(fileno=fds[0]), accept_fds=True))
        else:
            from sandboxes.trainer import shard

            shard.main(Channel(socket.socket(fileno=fds[0])), Channel(socket.socket(fileno=fds[1])))

    def _kill(self, pid: int) -> None:
        child = self.children.pop(pid, None)
        self.owners.pop(pid, None)
        if child is None:
            return
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            child.kill()  # it has not called setsid yet, or is gone
        child.join(5.0)

    def _reap(self) -> None:
        for child in self.children.values():
            child.is_alive()  # collects the exit status of those that ended


def _close_all_but(keep: list[int]) -> None:
    """Close every descriptor but those kept; the standard ones lead to /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    edges = sorted({2, *keep})
    for low, high in zip(edges, [*edges[1:], 65536], strict=True):
        os.closerange(low + 1, high)


def main(fd: int) -> None:
    """Import what children need, say so, serve."""
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    from sandboxes.isolation import worker  # noqa: F401  (imported so that children have it)
    from sandboxes.trainer import shard  # noqa: F401

    control = Channel(socket.socket(fileno=fd), accept_fds=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    control.send({"ready": True})
    zygote = Zygote(control)
    try:
        zygote.serve()
    finally:
        zygote.end()


if __name__ == "__main__":
    main(int(sys.argv[1]))
