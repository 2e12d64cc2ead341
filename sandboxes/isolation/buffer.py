"""Fixed-size shared memory between the trainer and one reward worker, and its layout.

The memory is anonymous and sealed against resizing: a worker that shrank it would otherwise crash the trainer at its
next read. What a worker writes into its inputs reaches nobody: the trainer never reads them back.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MAX_COMPONENTS = 32
_ALIGN = 64
_DTYPES = {"float32": torch.float32, "bool": torch.bool}
# Linux's fcntl constants; Python 3.10's fcntl module has them on Linux only.
_SEALS = sum(getattr(fcntl, f"F_SEAL_{name}", 0) for name in ("SHRINK", "GROW", "SEAL"))


@dataclass(frozen=True)
class InputSpec:
    """One parameter of the reward: `rows` values of shape `shape`."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # float32 or bool

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row."""
        size = 4 if self.dtype == "float32" else 1
        for length in self.shape:
            size *= length
        return size


@dataclass(frozen=True)
class Layout:
    """Where inputs and outputs lie: every input, then the reward, then MAX_COMPONENTS components."""

    inputs: tuple[InputSpec, ...]
    rows: int

    def offsets(self) -> tuple[list[int], int, int]:
        """Byte offsets of the inputs, of the outputs, and the total size."""
        position, starts = 0, []
        for spec in self.inputs:
            starts.append(position)
            position += -(-spec.bytes_per_row * self.rows // _ALIGN) * _ALIGN
        return starts, position, position + 4 * self.rows * (1 + MAX_COMPONENTS)

    def as_message(self) -> dict[str, Any]:
        """For the wire."""
        return {"rows": self.rows, "inputs": [[i.name, list(i.shape), i.dtype] for i in self.inputs]}

    @staticmethod
    def from_message(message: dict[str, Any]) -> Layout:
        """Inverse of `as_message`."""
        specs = tuple(InputSpec(name, tuple(shape), dtype) for name, shape, dtype in message["inputs"])
        return Layout(specs, int(message["rows"]))


class SharedBuffer:
    """The memory behind one layout, mapped into this process as tensors."""

    def __init__(self, layout: Layout, fd: int | None = None) -> None:
        starts, outputs, size = layout.offsets()
        self.fd = _create(size) if fd is None else fd
        self._map = mmap.mmap(self.fd, size)
        self.inputs = {
            spec.name: torch.frombuffer(
                self._map,
                dtype=_DTYPES[spec.dtype],
                count=layout.rows * spec.bytes_per_row // _DTYPES[spec.dtype].itemsize,
                offset=start,
            ).view(layout.rows, *spec.shape)
            for spec, start in zip(layout.inputs, starts, strict=True)
        }
        values = torch.frombuffer(self._map, dtype=torch.float32, offset=outputs)
        self.outputs: Tensor = values.view(1 + MAX_COMPONENTS, layout.rows)  # row 0: the reward

    def close(self) -> None:
        """Give the descriptor back; the mapping goes with the last tensor."""
        os.close(self.fd)


def _create(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("reward", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return fd
    with tempfile.TemporaryFile() as file:  # no memfd outside Linux: an unlinked file does
        os.ftruncate(file.fileno(), size)
        return os.dup(file.fileno())
