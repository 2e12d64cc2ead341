"""The run folder: configuration, events, candidates, calls to models, and at the end the reward with its proof.

Every file is written whole or not at all; `events.jsonl` only ever grows. docs/runs.md lists the files.
"""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from synth.candidate import Candidate
from synth.errors import StoreError
from synth.files import append_text, write_atomically

SCHEMA_VERSION = 1


def run_folder(task: str, out: Path | None) -> Path:
    """Where a new run goes: `out` itself when given, else `runs/<task>-<time>-<random>`. Nothing is created yet.

    Raises:
        StoreError: `out` holds a run already.
    """
    folder = out or Path("runs") / f"{task}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    if (folder / "run.json").exists():
        raise StoreError(f"{folder} already holds a run; give another folder with --out")
    return folder


class RunStore:
    """Writes one run's folder."""

    def __init__(self, folder: Path) -> None:
        """Create the folder; StoreError when it cannot be made."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot create the run folder {folder}: {error.strerror}") from error

    @property
    def name(self) -> str:
        """The run's name: its folder's."""
        return self.folder.resolve().name

    def event(self, kind: str, **values: Any) -> None:
        """Append one line to `events.jsonl`."""
        line = json.dumps({"schema_version": SCHEMA_VERSION, "time": round(time.time(), 3), "event": kind, **values})
        append_text(self.folder / "events.jsonl", line + "\n")

    def save(self, candidate: Candidate) -> None:
        """Write a candidate's source and measurements."""
        folder = self.folder / "candidates" / candidate.id
        if candidate.source is not None:
            write_atomically(folder / "reward.py", candidate.source)
        write_atomically(folder / "candidate.json", json.dumps(candidate.as_json(), indent=1))

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Write one of the run's JSON files."""
        write_atomically(self.folder / name, json.dumps({"schema_version": SCHEMA_VERSION, **value}, indent=2) + "\n")

    def write_text(self, name: str, text: str) -> Path:
        """Write one of the run's text files; its path."""
        write_atomically(self.folder / name, text)
        return self.folder / name


def read_run(folder: Path) -> dict[str, Any]:
    """`run.json` of a run folder, with `result` (None while it is not done), `candidates` and `events`.

    Raises:
        StoreError: the folder is no run, or a file in it is torn.
    """
    if not (folder / "run.json").is_file():
        raise StoreError(f"{folder} is not a run: it has no run.json")
    run = _read_json(folder / "run.json")
    result = folder / "result.json"
    run["result"] = _read_json(result) if result.is_file() else None
    run["candidates"] = [_read_candidate(path) for path in sorted(folder.glob("candidates/*/candidate.json"))]
    run["events"] = _read_events(folder / "events.jsonl")
    return run


def _read_candidate(path: Path) -> Candidate:
    data = _read_json(path)
    try:
        return Candidate.from_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{path} holds no candidate: key '{key}': {first['msg']}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} does not hold a JSON object")
    return value


def _read_events(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            break  # the last line of a run that was cut off
    return events
