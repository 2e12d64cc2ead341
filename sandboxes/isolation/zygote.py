"""A process that has imported torch once and forks reward workers and trainer shards from there.

Forking takes milliseconds where a fresh interpreter takes seconds. The zygote starts with an environment that holds
no secret and stays single-threaded, so that its children are safe to fork. When its first control connection closes
(the engine ended, however it ended) it kills every child it made and exits.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from sandboxes.isolation import linux, memory
from sandboxes.isolation.channel import Channel, ChannelClosed, ChannelMalformed, ChannelTimeout
from sandboxes.isolation.confine import Confinement, die_with_parent

ENTRIES = ("worker", "shard")
_WATCH_S = 0.1


class Zygote:
    """The loop that answers spawn, status and kill requests on its control connections."""

    def __init__(self, control: Channel, confinement: Confinement) -> None:
        from multiprocess import get_context

        self.context = get_context("fork")
        self.pid = os.getpid()
        self.primary, self.confinement = control, confinement
        self.controls = [control]
        self.children: dict[int, Any] = {}
        self.owners: dict[int, Channel] = {}  # of each child, the connection that asked for it
        self.workers: set[int] = set()
        self.reasons: dict[int, str] = {}  # of each worker that was killed for its use of memory

    def serve(self) -> None:
        """Until the engine hangs up."""
        while True:
            ready, _, _ = select.select(self.controls, [], [], _WATCH_S if self.workers else 1.0)
            self._reap()
            self._watch_memory()
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
            return {"exitcode": None if child is None else child.exitcode, "reason": self.reasons.get(pid)}
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
        if entry == "worker":
            self.workers.add(child.pid)
        if control_of_child is not None:
            control_of_child.close()
            fds = fds[:-1]
        for fd in fds:
            os.close(fd)
        return int(child.pid)

    def _run_child(self, entry: str, fds: list[int]) -> None:
        os.setsid()  # a group of its own, so that one kill takes all it started
        die_with_parent(self.pid)
        root = self.confinement.root if entry == "worker" else None
        _close_all_but(fds if root is None else [*fds, root])
        if entry == "worker":
            from sandboxes.isolation import worker

            channel = Channel(socket.socket(fileno=fds[0]), accept_fds=True)
            try:
                self.confinement.apply(self.pid)
            except OSError as error:
                channel.send({"ok": False, "message": f"the worker could not be confined: {error}"})
                os._exit(1)
            worker.main(channel)
        else:
            from sandboxes.trainer import shard

            shard.main(Channel(socket.socket(fileno=fds[0])), Channel(socket.socket(fileno=fds[1])))

    def _kill(self, pid: int) -> None:
        child = self.children.pop(pid, None)
        self.owners.pop(pid, None)
        self.reasons.pop(pid, None)
        self.workers.discard(pid)
        if child is None:
            return
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            child.kill()  # it has not called setsid yet, or is gone
        child.join(5.0)
        self._end_strays()

    def _reap(self) -> None:
        for child in self.children.values():
            child.is_alive()  # collects the exit status of those that ended
        self._end_strays()

    def _end_strays(self) -> None:
        """Kill what children left behind: as their subreaper this process inherits every orphan among them."""
        if linux.LINUX:
            mine = Path(f"/proc/self/task/{self.pid}/children").read_text().split()
            for pid in {int(word) for word in mine} - self.children.keys():
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _watch_memory(self) -> None:
        """Kill a worker that holds more than it may, and the largest one when the machine runs out."""
        if not linux.LINUX or not self.workers:
            return
        alive = [pid for pid in self.workers if self.children[pid].is_alive()]  # the ids of others may be in use again
        held = {pid: memory.resident(pid) for pid in alive if pid not in self.reasons}
        for pid, amount in held.items():
            if amount > memory.WORKER_BYTES:
                self._kill_for(
                    pid, f"it held {amount >> 20} MB of memory; at most {memory.WORKER_BYTES >> 20} are given"
                )
        largest = max(held, key=lambda pid: held[pid], default=None)
        if largest is not None and held[largest] > memory.SMALL_BYTES and memory.running_out():
            self._kill_for(largest, f"the machine ran out of memory while it held {held[largest] >> 20} MB")

    def _kill_for(self, pid: int, reason: str) -> None:
        self.reasons[pid] = reason
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _close_all_but(keep: list[int]) -> None:
    """Close every descriptor but those kept; the standard ones lead to /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    edges = sorted({2, *keep})
    for low, high in zip(edges, [*edges[1:], 65536], strict=True):
        os.closerange(low + 1, high)


def main(fd: int, limit: str) -> None:
    """Import what children need, find out how well they can be confined, say so, serve."""
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    from sandboxes.isolation.probe import probe, warm_up
    from sandboxes.trainer import shard  # noqa: F401  (imported so that children have it)

    control = Channel(socket.socket(fileno=fd), accept_fds=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    if linux.LINUX:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        linux.prctl(linux.PR_SET_DUMPABLE, 0)  # workers of the same user must not look into this process
    warm_up()
    confinement = Confinement(limit)
    found = probe(confinement)
    control.send({"isolation": found.as_json()})
    zygote = Zygote(control, confinement)
    try:
        zygote.serve()
    finally:
        zygote.end()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
