"""Records every call to a model in the run folder, and answers from the record what has been asked before.

`calls/NNNNNN.json` holds one call each: messages, options, answers, tokens, money, latency. Keys, headers and addresses
are never written. `transcript.md` is the same for people.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from synth.files import append_text, unwritable, write_atomically
from synth.llm.base import ChatModel, Completion, Message, SamplingOptions
from synth.llm.faults import PartialAnswersError
from synth.llm.ledger import Ledger

SCHEMA_VERSION = 1
_COMPLETIONS = TypeAdapter(list[Completion])
_LOG = logging.getLogger(__name__)
_PURPOSE: ContextVar[dict[str, str] | None] = ContextVar("purpose", default=None)


@contextmanager
def purpose(template: str, digest: str) -> Iterator[None]:
    """Calls made inside, in this thread, are recorded as made from this prompt template."""
    token = _PURPOSE.set({"template": template, "digest": digest})
    try:
        yield
    finally:
        _PURPOSE.reset(token)


@dataclass(frozen=True)
class Recorded:
    """What the record has of one call: its answers, perhaps fewer than were asked for, and the seconds they took."""

    answers: list[Completion]
    seconds: float


class CallRecord:
    """The calls of one run, shared by its roles: numbers them, writes them, finds them again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "calls"
        self.transcript = folder / "transcript.md"
        self._lock = threading.Lock()
        self._known: dict[str, list[Recorded]] = defaultdict(list)
        self._next = 1
        for path in sorted(self.folder.glob("*.json")):
            self._load(path)

    def _load(self, path: Path) -> None:
        """A file that is torn or not ours is set aside, not lost: that one call is simply made again."""
        try:
            number = int(path.stem)
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version {data['schema_version']}")
            found = Recorded(_COMPLETIONS.validate_python(data["answers"]), float(data["latency_s"]))
            self._known[str(data["key"])].append(found)
            self._next = max(self._next, number + 1)
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            aside = path.with_suffix(".unreadable")
            _LOG.warning("%s is no recorded call (%s); kept as %s", path, type(error).__name__, aside.name)
            os.replace(path, aside)
        except OSError as error:
            raise unwritable(path, error) from error

    def find(self, key: str) -> Recorded | None:
        """What is recorded of this call; every recorded call is given out once. None when there are none left."""
        with self._lock:
            waiting = self._known.get(key)
            return waiting.pop(0) if waiting else None

    def write(self, key: str, call: dict[str, Any], answers: Sequence[Completion]) -> None:
        """Record one call.

        Raises:
            StoreError: it cannot be written, as on a full disk.
        """
        with self._lock:
            number, self._next = self._next, self._next + 1
            entry = {"schema_version": SCHEMA_VERSION, "key": key, **call, "answers": [asdict(a) for a in answers]}
            write_atomically(self.folder / f"{number:06d}.json", json.dumps(entry, indent=1))
            append_text(self.transcript, _as_text(number, call, answers))


class RecordedModel:
    """A `ChatModel` whose calls are recorded, counted, and replayed where the record has them.

    Args:
        inner: the model that answers what the record does not.
        record: the run's.
        ledger: where calls are counted.
        role: who asks, `coder` or `evaluator`.
    """

    def __init__(self, inner: ChatModel, record: CallRecord, ledger: Ledger, role: str) -> None:
        self.inner, self.record, self.ledger, self.role = inner, record, ledger, role
        self.name = inner.name
        self.supports_grammar = inner.supports_grammar
        self.supports_prefill = inner.supports_prefill

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`; no answer is paid for twice.

        Raises:
            ModelError: as the model; answers that came before the fault are recorded.
            StoreError: an answer cannot be recorded.
        """
        asked = {
            "model": self.name,
            "role": self.role,
            "messages": [asdict(m) for m in messages],
            "n": n,
            "options": {name: value for name, value in asdict(options).items() if value is not None},
        }
        key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode("utf-8", "replace")).hexdigest()
        answers: list[Completion] = []
        while len(answers) < n and (found := self.record.find(key)) is not None:
            answers += found.answers
            self.ledger.add(self.role, found.answers, found.seconds, replayed=True)
        if len(answers) < n:
            answers += self._ask(key, asked, messages, n, len(answers), options)
        return answers[:n]

    def _ask(
        self, key: str, asked: dict[str, Any], messages: Sequence[Message], n: int, had: int, options: SamplingOptions
    ) -> list[Completion]:
        """The answers that the record lacks, recorded; seeds of the first try are not used again."""
        if had and options.seed is not None:
            options = replace(options, seed=options.seed + n)
        start = time.monotonic()

        def keep(answers: Sequence[Completion]) -> None:
            seconds = round(time.monotonic() - start, 3)
            self.ledger.add(self.role, answers, seconds)
            when = {"time": round(time.time(), 3), "latency_s": seconds}
            self.record.write(key, {**asked, "prompt": _PURPOSE.get(), **when}, answers)

        try:
            answers = self.inner.complete(messages, n - had, options)
        except PartialAnswersError as error:
            keep(error.answers)
            raise
        keep(answers)
        return answers

    def close(self) -> None:
        """See `ChatModel.close`."""
        self.inner.close()


def _as_text(number: int, call: dict[str, Any], answers: Sequence[Completion]) -> str:
    """One call for the transcript."""
    prompt = call.get("prompt")
    source = f", from {prompt['template']}" if prompt else ""
    lines = [f"## Call {number}: {call['role']}, {call['model']}, {call['latency_s']} s{source}", ""]
    for message in call["messages"]:
        lines += [f"### {message['role']}", "", message["content"].rstrip(), ""]
    prefill = call["options"].get("prefill", "")
    for index, answer in enumerate(answers, start=1):
        cost = "price unknown" if answer.cost_usd is None else f"{answer.cost_usd:.6f} USD"
        usage = f"{answer.usage.prompt_tokens} + {answer.usage.completion_tokens} tokens, {cost}"
        ended = f", ended by {answer.finish_reason}" if answer.finish_reason not in (None, "stop") else ""
        title = f"### answer {index} of {len(answers)} ({usage}{ended})"
        lines += [title, "", (prefill + answer.text).rstrip(), ""]
    return "\n".join(lines) + "\n"
