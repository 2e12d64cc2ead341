"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

# As in every process of the engine, and before anything imports torch: one thread, and the same kernels everywhere.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["MKL_CBWR"] = "AUTO,STRICT"

# A suite started in the background may have Ctrl-C ignored, and every process it starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A skipped test hides something that is missing: here it fails."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which this suite does not allow: {report.longrepr}"
    return report
