"""Canned answers: a model for tests, for replaying somebody's answers, for showing a run without any model."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import yaml

from synth.errors import ModelError
from synth.llm.base import Completion, Message, SamplingOptions, Usage


class ScriptedModel:
    """Gives its answers in order, each once, or round and round with `cycle`. Free, and never in doubt."""

    supports_grammar = False
    supports_prefill = False

    def __init__(self, answers: Sequence[str], name: str = "scripted", cycle: bool = False) -> None:
        self.name, self.cycle = name, cycle
        self.answers = list(answers)
        self.requests: list[tuple[tuple[Message, ...], SamplingOptions]] = []
        self._given = 0
        self._lock = threading.Lock()

    @staticmethod
    def from_path(path: Path, cycle: bool = True) -> ScriptedModel:
        """Answers from a path.

        Args:
            path: a `.yaml` file with a list of texts, a `.jsonl` file with one text a line (a JSON string, or an
                object with the key `answer`), any other text file (one answer), or a folder (one answer from each of
                its files, in the order of their names).
            cycle: whether to begin again after the last answer.

        Raises:
            ModelError: there is no such file or folder, it holds no answers, or it is malformed.
        """
        try:
            answers = _read(path)
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"the scripted answers in {path} cannot be read: {reason}") from error
        if not answers:
            raise ModelError(f"{path} holds no scripted answers")
        return ScriptedModel(answers, f"scripted:{path.name}", cycle)

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`.

        Raises:
            ModelError: fewer than `n` answers are left.
        """
        with self._lock:
            self.requests.append((tuple(messages), options))
            return [self._next() for _ in range(n)]

    def close(self) -> None:
        """Nothing to release."""

    def _next(self) -> Completion:
        if self._given >= len(self.answers) and not (self.cycle and self.answers):
            raise ModelError(f"the scripted model has only {len(self.answers)} answers and was asked for more")
        text = self.answers[self._given % len(self.answers)]
        self._given += 1
        return Completion(text, Usage(), 0.0, "stop")


def _read(path: Path) -> list[str]:
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        return [p.read_text(encoding="utf-8") for p in files]
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yaml", ".yml"):
        return _texts(yaml.safe_load(text))
    if path.suffix == ".jsonl":
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
        return _texts([v.get("answer") if isinstance(v, dict) else v for v in values])
    return [text]


def _texts(values: object) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise ValueError("expected a list of texts")
    return [v for v in values if isinstance(v, str)]
