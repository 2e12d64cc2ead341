"""A system call filter for workers: the allow-list of `syscalls` as a classic BPF program, installed for good."""

from __future__ import annotations

import ctypes
import errno
import os

from sandboxes.isolation import linux, syscalls

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _EPERM = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in the kernel's seccomp_data
_X32 = 0x40000000  # x86's second set of numbers for the same calls begins here
_MODE_FILTER = 2


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def build_filter(machine: str, pid: int) -> list[tuple[int, int, int, int]]:
    """The program for this machine and this process as (code, jump if true, jump if false, value).

    Raises:
        OSError: there is no table of system calls for this machine.
    """
    if machine not in syscalls.MACHINES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    column, arch = syscalls.MACHINES[machine]
    program = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    for numbers, action in ((syscalls.ALLOWED, _ALLOW), (syscalls.FATAL, _KILL)):
        for pair in numbers.values():
            number = pair[column]
            if number is not None:
                program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]
    program += _argument_rule(syscalls.TGKILL[column], 0, (pid,), _KILL)
    program += _argument_rule(syscalls.FCNTL[column], 1, syscalls.FCNTL_COMMANDS, _EPERM)
    return [*program, (_RETURN, 0, 0, _EPERM)]


def _argument_rule(number: int, index: int, good: tuple[int, ...], otherwise: int) -> list[tuple[int, int, int, int]]:
    """Allow one call with one of these values (32 bits) of an argument."""
    body = [(_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * index)]
    for value in good:
        body += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
    body.append((_RETURN, 0, 0, otherwise))
    return [(_EQUAL, 0, len(body), number), *body]


def install() -> None:
    """Filter this thread's system calls from now on. It needs `no_new_privs`. OSError where the kernel refuses."""
    instructions = build_filter(linux.MACHINE, os.getpid())
    array = (_Instruction * len(instructions))(*(_Instruction(*i) for i in instructions))
    program = _Program(len(instructions), array)
    linux.prctl(linux.PR_SET_SECCOMP, _MODE_FILTER, linux.pointer_to(program))
