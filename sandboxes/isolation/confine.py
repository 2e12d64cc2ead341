"""Confining a worker: every layer, in the order in which one still permits the next.

Everything here runs in a single-threaded process right after its fork, before any code of a model is loaded. Which
layers this machine permits is found out by `sandboxes.isolation.probe`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

from sandboxes.isolation import landlock, linux, memory, seccomp
from sandboxes.isolation.levels import LAYER_OF, LAYERS, LEVELS

_DESCRIPTORS = 64
_NOBODY = 65534
_FIRST_USER = 0x60000000  # far above the users of any system; the process id is added
_NAMESPACES = 0x40000000 | 0x08000000 | 0x04000000  # CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS
_USER_NAMESPACE = 0x10000000  # CLONE_NEWUSER


class Confinement:
    """The layers that workers get: those up to a level that the machine permits.

    Args:
        limit: the highest level to use; tests compare levels with it.
    """

    def __init__(self, limit: str = LEVELS[-1]) -> None:
        above = {LAYER_OF[name] for name in LEVELS[LEVELS.index(limit) + 1 :]}
        self.wanted = tuple(layer for layer in LAYERS if layer not in above)
        self.left_out = {layer: f"limited to {limit}" for layer in LAYERS if layer in above}
        self.layers = self.wanted  # fewer once the probe has found that some are not permitted
        self.root = _empty_directory()  # a descriptor, which workers keep until they are confined

    def apply(self, parent: int) -> None:
        """Confine this process for good; it dies with its parent (a process id).

        Raises:
            OSError: a layer failed; the process must not go on.
        """
        for layer in self.layers:
            self.apply_layer(layer, parent)

    def apply_layer(self, layer: str, parent: int) -> None:
        """One of `LAYERS`, which stand in the order in which they can be applied. OSError when it is refused."""
        if layer == "limits":
            limit_resources()
        elif layer == "namespaces":
            self._enter_namespaces()
        elif layer == "user":
            become_nobody()
            die_with_parent(parent)  # a change of user forgets it
            if linux.LINUX:
                linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
                linux.prctl(linux.PR_SET_DUMPABLE, 0)  # no other process of this user may look into this one
        elif layer == "landlock":
            landlock.restrict()
        else:
            seccomp.install()

    def _enter_namespaces(self) -> None:
        """A network with nothing in it, no shared IPC objects, and an empty, deleted directory as the root."""
        if self.root is None:
            raise OSError(errno.ENOENT, "no directory for temporary files is writable")
        _unshare()
        os.fchdir(self.root)
        os.chroot(".")
        os.close(self.root)


def _unshare() -> None:
    """Root keeps its namespace of users where it may, to become another user in it; all others need a new one."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            return linux.unshare(_NAMESPACES)
    return linux.unshare(_USER_NAMESPACE | _NAMESPACES)


def limit_resources() -> None:
    """Bounds that hold without any help of the kernel's newer parts.

    An allocation beyond the limit becomes an exception inside the reward; a crash leaves no core file; no file can
    grow, no process be started.
    """
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: _DESCRIPTORS}
    if linux.LINUX:
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # else /proc/self belongs to root
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # when memory runs out, this process goes first
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + memory.WORKER_BYTES
        limits[resource.RLIMIT_NPROC] = 0
        limits[resource.RLIMIT_MSGQUEUE] = 0
    for kind, limit in limits.items():
        with contextlib.suppress(ValueError):  # a lower limit is in force already
            resource.setrlimit(kind, (limit, limit))


def become_nobody() -> None:
    """Root becomes a user of the worker's own, who owns nothing and may signal nobody; all give up every capability.

    In a new namespace of users without a map there is no other user to become: root is nobody there already.
    """
    if os.geteuid() == 0:
        os.setgroups([])
        try:
            _become(_FIRST_USER + os.getpid())
        except OSError:  # a container that maps few users; then workers share one, and could signal each other
            _become(_NOBODY)
    if linux.LINUX:
        linux.drop_capabilities()


def _become(user: int) -> None:
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when its parent (its process id) ends; elsewhere a closed socket must do."""
    if linux.LINUX:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be asked
        os._exit(1)


def _empty_directory() -> int | None:
    """A descriptor of a directory that is empty and deleted, so that nothing can ever be put in it."""
    if sys.platform != "linux":
        return None
    try:
        path = tempfile.mkdtemp(prefix="synth-root-")
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        os.rmdir(path)
    except OSError:
        return None
    return descriptor
