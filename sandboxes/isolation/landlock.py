"""Landlock with no rule at all: no file, no TCP port, no abstract socket and no signal to anybody else.

Every right that the running kernel's version of Landlock knows is handled, and none is granted.
"""

from __future__ import annotations

import ctypes
import errno

from sandboxes.isolation import linux

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same numbers on every machine
_VERSION_FLAG = 1
# Version of Landlock to the number of file rights it knows; versions between have as many as the one before.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
_TCP, _SCOPES = 0b11, 0b11  # bind, connect; abstract sockets, signals
_TCP_SINCE, _SCOPES_SINCE = 4, 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


def version() -> int:
    """The kernel's version of Landlock. OSError where there is none or it is switched off."""
    return linux.syscall(_CREATE_RULESET, ctypes.c_void_p(None), 0, _VERSION_FLAG)


def restrict() -> None:
    """Deny this thread everything that Landlock can deny. It needs `no_new_privs`. OSError where the kernel refuses."""
    abi = version()
    if abi < 1:
        raise OSError(errno.EOPNOTSUPP, "Landlock is switched off")
    rights = max(count for since, count in _FILE_RIGHTS.items() if since <= abi)
    ruleset = _Ruleset((1 << rights) - 1)
    size = 8
    if abi >= _TCP_SINCE:
        ruleset.network, size = _TCP, 16
    if abi >= _SCOPES_SINCE:
        ruleset.scopes, size = _SCOPES, 24
    descriptor = linux.syscall(_CREATE_RULESET, linux.pointer_to(ruleset), size, 0)
    linux.syscall(_RESTRICT_SELF, descriptor, 0)
