"""Finds out at start-up which layers of the confinement this machine permits, by trying them in processes that end."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from collections.abc import Callable

import torch

from sandboxes.isolation.confine import Confinement
from sandboxes.isolation.levels import LAYERS, Isolation

_PROBE_S = 20
_REASONS = {
    errno.ENOSYS: "the kernel does not have it",
    errno.EOPNOTSUPP: "it is switched off in the kernel",
    errno.EPERM: "not permitted here (a container's profile, or a setting of the kernel)",
    errno.EACCES: "not permitted here (a security module of the kernel)",
    errno.ENOSPC: "the limit on their number is reached or zero (user.max_user_namespaces)",
    errno.EINVAL: "the kernel was built without it",
}
_SAMPLE = """
import math
from typing import Dict, Tuple
import torch
from torch import Tensor

def compute_reward(angle: Tensor, position: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
    height = torch.cos(angle) * math.pi
    near = torch.exp(-torch.norm(position, dim=-1))
    turned = torch.linalg.norm(position @ torch.eye(3), dim=-1)
    reward = height + torch.where(angle > 0, near, turned)
    return reward, {"height": height, "near": near}
"""


def probe(confinement: Confinement) -> Isolation:
    """Hold a confinement to the layers that work here.

    A filter of system calls that this machine's libraries cannot live with is of no use: whether a confined process
    still computes, and is stopped when it makes a socket, is tried as well.
    """
    missing = dict(confinement.left_out)
    missing.update(_in_a_process(lambda: _refused(confinement, confinement.wanted)))
    layers = tuple(layer for layer in confinement.wanted if layer not in missing)
    if "seccomp" in layers and not _filter_works(confinement, layers):
        missing["seccomp"] = "the filter does not suit this machine's libraries"
    confinement.layers = tuple(layer for layer in LAYERS if layer not in missing)
    return Isolation.of({layer: missing[layer] for layer in LAYERS if layer in missing})


def warm_up() -> None:
    """Use what rewards use, TorchScript's compiler too: what is loaded when first used cannot be once confined."""
    from sandboxes.isolation.worker import Worker, load

    worker = Worker()
    function = worker.function = load(_SAMPLE)
    function(torch.zeros(4), torch.zeros(4, 3))
    worker.scriptable()
    str(torch.zeros(3))  # printing imports a module of its own


def _filter_works(confinement: Confinement, layers: tuple[str, ...]) -> bool:
    def compute() -> dict[str, str]:
        _refused(confinement, layers)
        warm_up()
        return {"computed": "yes"}

    def attack() -> dict[str, str]:
        _refused(confinement, layers)
        socket.socket()
        return {}

    return _in_a_process(compute) == {"computed": "yes"} and _outcome(attack)[1] == -signal.SIGSYS


def _refused(confinement: Confinement, layers: tuple[str, ...]) -> dict[str, str]:
    """Apply layers to this process; those that fail, with the reason."""
    failed = {}
    for layer in layers:
        try:
            confinement.apply_layer(layer, os.getppid())
        except OSError as error:
            failed[layer] = _REASONS.get(error.errno or 0, str(error))
    return failed


def _in_a_process(action: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What an action returns in a process of its own; every layer as missing when that process dies."""
    said, code = _outcome(action)
    return dict.fromkeys(LAYERS, f"trying it ended with {code}") if said is None else said


def _outcome(action: Callable[[], dict[str, str]]) -> tuple[dict[str, str] | None, int]:
    """What an action returns in a process of its own, and that process's exit code (negative: the signal)."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            signal.alarm(_PROBE_S)
            theirs.send(json.dumps(action()).encode())
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        data = ours.recv(1 << 16)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (json.loads(data) if data else None), code
