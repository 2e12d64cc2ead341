"""The few calls to the kernel that Python has no function for, through the C library. Errors are OSError."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

LINUX = sys.platform == "linux"
MACHINE = platform.machine()
_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int, pointer: ctypes.c_void_p | None = None) -> None:
    """`prctl(2)`; a pointer takes the third argument's place."""
    _checked(_libc().prctl(option, ctypes.c_ulong(value), pointer or ctypes.c_ulong(0), 0, 0))


def syscall(number: int, *arguments: int | ctypes.c_void_p) -> int:
    """`syscall(2)`: what the kernel returns."""
    wide = [a if isinstance(a, ctypes.c_void_p) else ctypes.c_long(a) for a in arguments]
    return _checked(_libc().syscall(ctypes.c_long(number), *wide))


def unshare(flags: int) -> None:
    """`unshare(2)`."""
    _checked(_libc().unshare(ctypes.c_int(flags)))


def pointer_to(structure: ctypes.Structure) -> ctypes.c_void_p:
    """The address of a structure, which the caller must keep alive."""
    return ctypes.cast(ctypes.pointer(structure), ctypes.c_void_p)


def drop_capabilities() -> None:
    """Give up every capability, in the effective, the permitted and the inheritable set."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    empty = (ctypes.c_uint32 * 6)()
    _checked(_libc().capset(ctypes.byref(header), ctypes.byref(empty)))


def _libc() -> ctypes.CDLL:
    if not LINUX:
        raise OSError(errno.ENOSYS, "only Linux has it")
    return _LIBC


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)
