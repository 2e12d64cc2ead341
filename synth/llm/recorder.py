"""Records every call to a model in the run folder, and answers from the record what has been asked before.

`calls/NNNNNN.json` holds one call each: messages, options, answers, tokens, money, latency. Keys, headers and addresses
are never written. `transcript.md` is the same for people.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from synth.files import append_text, write_atomically
from synth.llm.base import ChatModel, Completion, Message, SamplingOptions
from synth.llm.ledger import Ledger

SCHEMA_VERSION = 1
_COMPLETIONS = TypeAdapter(list[Completion])


class CallRecord:
    """The calls of one run, shared by its roles: numbers them, writes them, finds them again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "calls"
        self.transcript = folder / "transcript.md"
        self._lock = threading.Lock()
        self._known: dict[str, list[list[Completion]]] = defaultdict(list)
        self._next = 1
        for path in sorted(self.folder.glob("*.json")):
            self._load(path)

    def _load(self, path: Path) -> None:
        """A file that is torn or not ours is set aside, not lost: that one call is simply made again."""
        try:
            self._next = max(self._next, int(path.stem) + 1)
            data = json.loads(path.read_text(encoding="utf-8"))
            self._known[str(data["key"])].append(_COMPLETIONS.validate_python(data["answers"]))
        except (ValueError, KeyError, TypeError, ValidationError):
            path.rename(path.with_suffix(".unreadable"))

    def find(self, key: str) -> list[Completion] | None:
        """The recorded answers to this call, each of them given out once; None when there are none left."""
        with self._lock:
            waiting = self._known.get(key)
            return waiting.pop(0) if waiting else None

    def write(self, key: str, call: dict[str, Any], answers: Sequence[Completion]) -> None:
        """Record one call."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            entry = {"schema_version": SCHEMA_VERSION, "key": key, **call, "answers": [asdict(a) for a in answers]}
            write_atomically(self.folder / f"{number:06d}.json", json.dumps(entry, indent=1))
            append_text(self.transcript, _as_text(number, call, answers))


class RecordedModel:
    """A `ChatModel` whose calls are recorded, counted, and replayed where the record has them."""

    def __init__(self, inner: ChatModel, record: CallRecord, ledger: Ledger, role: str) -> None:
        self.inner, self.record, self.ledger, self.role = inner, record, ledger, role
        self.name = inner.name
        self.supports_grammar = inner.supports_grammar
        self.supports_prefill = inner.supports_prefill

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`; no answer is paid for twice."""
        asked = {
            "model": self.name,
            "role": self.role,
            "messages": [asdict(m) for m in messages],
            "n": n,
            "options": {name: value for name, value in asdict(options).items() if value is not None},
        }
        key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode("utf-8", "replace")).hexdigest()
        found = self.record.find(key)
        if found is not None:
            self.ledger.add(self.role, found, 0.0, replayed=True)
            return found
        start = time.monotonic()
        answers = self.inner.complete(messages, n, options)
        seconds = time.monotonic() - start
        self.ledger.add(self.role, answers, seconds)
        self.record.write(key, {**asked, "time": round(time.time(), 3), "latency_s": round(seconds, 3)}, answers)
        return answers

    def close(self) -> None:
        """See `ChatModel.close`."""
        self.inner.close()


def _as_text(number: int, call: dict[str, Any], answers: Sequence[Completion]) -> str:
    """One call for the transcript."""
    lines = [f"## Call {number}: {call['role']}, {call['model']}, {call['latency_s']} s", ""]
    for message in call["messages"]:
        lines += [f"### {message['role']}", "", message["content"].rstrip(), ""]
    prefill = call["options"].get("prefill", "")
    for index, answer in enumerate(answers, start=1):
        cost = "price unknown" if answer.cost_usd is None else f"{answer.cost_usd:.6f} USD"
        usage = f"{answer.usage.prompt_tokens} + {answer.usage.completion_tokens} tokens, {cost}"
        lines += [f"### answer {index} of {len(answers)} ({usage})", "", (prefill + answer.text).rstrip(), ""]
    return "\n".join(lines) + "\n"
