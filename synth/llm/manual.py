"""Any chat window as the model: each prompt becomes a file, each answer is a file that somebody saves."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from synth.errors import ModelError
from synth.files import append_text, write_atomically
from synth.llm.base import Completion, Message, SamplingOptions, Usage

_SETTLED_S = 0.5  # an answer counts once its file has not changed for this long


class ManualModel:
    """Writes `NNNN-prompt.md` and waits for `NNNN-answer.md` beside it, for as long as it takes.

    After an interruption the same prompts find their files, and answers that lie there already are taken at once.
    `taken.txt` lists the answers that were handed over, so that none is taken for a later question.

    Args:
        folder: where the files are; made when the first prompt is written.
        poll_s: seconds between looks.
        echo: tells the user what to do.
    """

    name = "manual"
    supports_grammar = False
    supports_prefill = False

    def __init__(
        self,
        folder: Path,
        poll_s: float = 0.5,
        echo: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
    ) -> None:
        self.folder, self.poll_s, self.echo = folder, poll_s, echo
        self._number = 0

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`: all `n` prompts are written first, so that they can be answered in any order.

        Raises:
            ModelError: an answer cannot be read.
            StoreError: a prompt cannot be written.
        """
        text = _as_text(messages, options)
        taken = self._taken()
        numbers = [self._place(text, taken) for _ in range(n)]
        if not all(self._path(number, "answer").exists() for number in numbers):
            first, last = self._path(numbers[0], "prompt"), self._path(numbers[-1], "prompt")
            span = first.name if n == 1 else f"{first.name} to {last.name}"
            self.echo(
                f"waiting for you: give {span} in {self.folder} to a model and save each answer as NNNN-answer.md"
            )
        answers = [Completion(self._wait(number), Usage(), 0.0, "stop") for number in numbers]
        append_text(self.folder / "taken.txt", "".join(f"{number:04d}\n" for number in numbers))
        return answers

    def close(self) -> None:
        """Nothing to release."""

    def _place(self, text: str, taken: set[int]) -> int:
        """The next number whose prompt is not written yet, or is this one and waits for its answer to be taken."""
        while True:
            self._number += 1
            path = self._path(self._number, "prompt")
            if not path.exists():
                write_atomically(path, text)
                return self._number
            if self._number not in taken and _read(path) == text:
                return self._number

    def _taken(self) -> set[int]:
        path = self.folder / "taken.txt"
        return {int(word) for word in _read(path).split() if word.isdigit()} if path.exists() else set()

    def _path(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:04d}-{kind}.md"

    def _wait(self, number: int) -> str:
        """The answer, once its file is there, not empty, and no longer growing."""
        path = self._path(number, "answer")
        before: tuple[int, int] | None = None
        while True:
            try:
                stat = path.stat()
            except FileNotFoundError:
                stat = None
            # Two looks apart in time, for the clocks of a shared folder need not agree.
            now = (stat.st_size, stat.st_mtime_ns) if stat is not None and stat.st_size > 0 else None
            if now is not None and now == before:
                return _read(path)
            before = now
            time.sleep(max(self.poll_s, _SETTLED_S) if now is not None else self.poll_s)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"the file {path} cannot be read: {error}") from error


def _as_text(messages: Sequence[Message], options: SamplingOptions) -> str:
    """The conversation as one text to paste."""
    text = "\n\n".join(f"## {m.role}\n\n{m.content.strip()}" for m in messages) + "\n"
    if options.json_schema is not None:
        text += "\nAnswer with one JSON object.\n"
    return text
