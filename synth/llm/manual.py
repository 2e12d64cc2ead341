"""Any chat window as the model: each prompt becomes a file, each answer is a file that somebody saves."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from synth.errors import ModelError
from synth.files import write_atomically
from synth.llm.base import Completion, Message, SamplingOptions, Usage

_SETTLED_S = 0.5  # an answer counts once its file has not changed for this long


class ManualModel:
    """Writes `NNNN-prompt.md` and waits for `NNNN-answer.md` beside it, for as long as it takes."""

    name = "manual"
    supports_grammar = False
    supports_prefill = False

    def __init__(
        self,
        folder: Path,
        poll_s: float = 0.5,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    ) -> None:
        self.folder, self.poll_s, self.say = folder, poll_s, say
        self._number = 0

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """See `ChatModel.complete`: all `n` prompts are written first, so that they can be answered in any order."""
        numbers = []
        for _ in range(n):
            self._number += 1
            numbers.append(self._number)
            write_atomically(self._path(self._number, "prompt"), _as_text(messages))
        first, last = self._path(numbers[0], "prompt"), self._path(numbers[-1], "prompt")
        span = first.name if n == 1 else f"{first.name} to {last.name}"
        self.say(f"waiting for you: give {span} in {self.folder} to a model and save each answer as NNNN-answer.md")
        return [Completion(self._wait(number), Usage(), 0.0, "stop") for number in numbers]

    def close(self) -> None:
        """Nothing to release."""

    def _path(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:04d}-{kind}.md"

    def _wait(self, number: int) -> str:
        """The answer, once its file is there, not empty, and no longer growing."""
        path = self._path(number, "answer")
        while True:
            try:
                stat = path.stat()
                if stat.st_size > 0 and time.time() - stat.st_mtime >= _SETTLED_S:
                    return path.read_text(encoding="utf-8")
            except FileNotFoundError:
                pass
            except (OSError, UnicodeDecodeError) as error:
                raise ModelError(f"the answer {path} cannot be read: {error}") from error
            time.sleep(self.poll_s)


def _as_text(messages: Sequence[Message]) -> str:
    """The conversation as one text to paste."""
    return "\n\n".join(f"## {m.role}\n\n{m.content.strip()}" for m in messages) + "\n"
