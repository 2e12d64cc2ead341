"""Files that are written whole or not at all, and one clear line when the disk will not take them."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from synth.errors import StoreError


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content; a crash leaves the old one or the new one.

    What UTF-8 cannot say (half a surrogate pair in a model's answer) becomes a question mark.

    Raises:
        StoreError: it cannot be written, as on a full disk; says what to do.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> StoreError:
    """The error for a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"the disk is full: cannot write {path}; free some space, what is already written is kept")
    return StoreError(f"cannot write {path}: {error.strerror}")


def append_text(path: Path, text: str) -> None:
    """Add to the end of a file.

    Raises:
        StoreError: as `write_atomically`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise unwritable(path, error) from error
