"""The two models without a model: canned answers, and people with a chat window."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from synth.errors import ModelError
from synth.llm import Message, SamplingOptions
from synth.llm.manual import ManualModel
from synth.llm.scripted import ScriptedModel

ASK = [Message("system", "be short"), Message("user", "hello")]
PLAIN = SamplingOptions()


def ask(model: ScriptedModel | ManualModel, n: int, text: str = "hello") -> list[str]:
    return [c.text for c in model.complete([Message("user", text)], n, PLAIN)]


def test_scripted_answers_in_order_until_they_run_out() -> None:
    model = ScriptedModel(["a", "b", "c"])
    assert ask(model, 2) == ["a", "b"]
    assert ask(model, 1) == ["c"]
    with pytest.raises(ModelError, match="only 3 answers"):
        ask(model, 1)
    assert model.requests[0] == ((Message("user", "hello"),), PLAIN)
    assert ask(ScriptedModel(["a", "b"], cycle=True), 5) == ["a", "b", "a", "b", "a"]


def test_scripted_files(tmp_path: Path) -> None:
    wanted = ["first\nwith two lines", "second: é"]
    (tmp_path / "a.jsonl").write_text(json.dumps(wanted[0]) + "\n\n" + json.dumps({"answer": wanted[1]}), "utf-8")
    (tmp_path / "a.yaml").write_text("- |-\n  first\n  with two lines\n- 'second: é'\n", "utf-8")
    (tmp_path / "one.txt").write_text(wanted[0], "utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "2.txt").write_text(wanted[1], "utf-8")
    (folder / "1.md").write_text(wanted[0], "utf-8")
    (folder / ".hidden").write_text("no", "utf-8")
    for name in ("a.jsonl", "a.yaml", "folder"):
        assert ask(ScriptedModel.from_path(tmp_path / name, cycle=False), 2) == wanted
    assert ask(ScriptedModel.from_path(tmp_path / "one.txt"), 2) == [wanted[0], wanted[0]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", "- a\n- {b: c}\n"),
        ("a.yaml", "key: [unclosed"),
        ("a.yaml", "[]"),
        ("a.jsonl", '"a"\n{"text": "b"}\n'),
        ("a.jsonl", '"unclosed'),
        ("a.txt", b"\xff\xfe\x00"),
    ],
)
def test_malformed_scripts_are_one_line(tmp_path: Path, name: str, content: str | bytes) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ModelError, match=name) as caught:
        ScriptedModel.from_path(tmp_path / name)
    assert "\n" not in str(caught.value)


class Person(threading.Thread):
    """Answers every prompt in a folder by repeating its last line, in capitals and with its number."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.count = folder, count

    def run(self) -> None:
        answered: set[str] = set()
        while len(answered) < self.count:
            for prompt in reversed(sorted(self.folder.glob("*-prompt.md"))):
                number = prompt.name[:4]
                if number not in answered:
                    answered.add(number)
                    last = prompt.read_text(encoding="utf-8").strip().splitlines()[-1]
                    (self.folder / f"{number}-answer.md").write_text(f"{last.upper()} {number}", encoding="utf-8")
            time.sleep(0.01)


def test_manual_answers_by_file(tmp_path: Path) -> None:
    said: list[str] = []
    model = ManualModel(tmp_path / "m", 0.02, said.append)
    Person(tmp_path / "m", 3).start()
    assert ask(model, 2, "good morning") == ["GOOD MORNING 0001", "GOOD MORNING 0002"]
    assert ask(model, 1, "good night") == ["GOOD NIGHT 0003"]
    assert len(said) == 2
    assert "0001-prompt.md to 0002-prompt.md" in said[0]
    assert str(tmp_path / "m") in said[0]


def test_manual_prompt_holds_the_whole_conversation(tmp_path: Path) -> None:
    (tmp_path / "0001-answer.md").write_text("ready before it was asked", encoding="utf-8")
    model = ManualModel(tmp_path, 0.02, print)
    (answer,) = model.complete(ASK, 1, SamplingOptions(json_schema={"type": "object"}))
    text = (tmp_path / "0001-prompt.md").read_text(encoding="utf-8")
    assert answer.cost_usd == 0.0
    for words in ("system", "be short", "user", "hello", "JSON"):
        assert words in text


def test_manual_waits_until_a_growing_file_is_whole(tmp_path: Path) -> None:
    pieces = [f"piece {i}\n" for i in range(12)]

    def type_slowly() -> None:
        while not (tmp_path / "0001-prompt.md").exists():
            time.sleep(0.01)
        with (tmp_path / "0001-answer.md").open("w", encoding="utf-8") as file:
            time.sleep(0.2)  # an empty file first, as editors make it
            for piece in pieces:
                file.write(piece)
                file.flush()
                time.sleep(0.1)

    threading.Thread(target=type_slowly, daemon=True).start()
    assert ask(ManualModel(tmp_path, 0.02, print), 1) == ["".join(pieces)]


def test_manual_goes_on_after_an_interruption(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from synth.llm import Message, SamplingOptions
from synth.llm.manual import ManualModel
model = ManualModel(Path({str(tmp_path)!r}), 0.02)
try:
    model.complete([Message("user", "hello")], 2, SamplingOptions())
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "waiting for you" in process.stderr.readline()
    (tmp_path / "0001-answer.md").write_text("worth keeping", encoding="utf-8")
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n"
    (tmp_path / "0002-answer.md").write_text("came later", encoding="utf-8")
    said: list[str] = []
    assert ask(ManualModel(tmp_path, 0.02, said.append), 2) == ["worth keeping", "came later"]
    assert said == []
    # The same question again is a new question: taken answers are not taken twice, other questions' never.
    Person(tmp_path, 4).start()
    model = ManualModel(tmp_path, 0.02, said.append)
    assert ask(model, 1) == ["HELLO 0003"]
    assert ask(model, 1, "bye") == ["BYE 0004"]


def test_manual_answer_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "0001-answer.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="0001-answer"):
        ask(ManualModel(tmp_path, 0.02, print), 1)
