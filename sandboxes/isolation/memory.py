"""How much memory processes hold, and whether the machine runs out of it. Linux only."""

from __future__ import annotations

import resource
from pathlib import Path

WORKER_BYTES = 4 << 30  # that a worker may allocate beyond what torch holds at the start, and hold altogether
SMALL_BYTES = 1 << 30  # a worker that holds less is not why memory runs out
_LEAST_AVAILABLE = 0.05  # of the machine's memory


def resident(pid: int) -> int:
    """Bytes of memory that a process holds for itself; 0 when it is gone."""
    try:
        _, pages, shared = Path(f"/proc/{pid}/statm").read_text().split()[:3]
    except (OSError, ValueError):
        return 0
    return (int(pages) - int(shared)) * resource.getpagesize()


def running_out() -> bool:
    """Whether less than a twentieth of the machine's memory is available."""
    amounts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(amounts[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return available < _LEAST_AVAILABLE * total
