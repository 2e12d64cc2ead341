"""Canned answers: a model for tests, for replaying somebody's answers, for showing a run without any model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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

    @staticmethod
    def from_path(path: Path, cycle: bool = True) -> ScriptedModel:
        """Answers from a file, or from every file of a folder in the order of their names.

        Raises:
            ModelError: there is no such file or folder, or the folder is empty.
        """
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.is_file())
        elif path.is_file():
            files = [path]
        else:
            raise ModelError(f"there is no file or folder {path} with scripted answers")
        if not files:
            raise ModelError(f"the folder {path} holds no scripted answers")
        try:
            answers = [p.read_text(encoding="utf-8") for p in files]
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"the scripted answers in {path} cannot be read: {error}") from error
        return ScriptedModel(answers, f"scripted:{path.name}", cycle)

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`."""
        self.requests.append((tuple(messages), options))
        return [self._next() for _ in range(n)]

    def _next(self) -> Completion:
        if self._given >= len(self.answers) and not (self.cycle and self.answers):
            raise ModelError(f"the scripted model has only {len(self.answers)} answers and was asked for more")
        text = self.answers[self._given % len(self.answers)]
        self._given += 1
        return Completion(text, Usage(), 0.0, "stop")

    def close(self) -> None:
        """Nothing to release."""
