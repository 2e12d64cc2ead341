"""The record of calls: complete, replayed, robust against torn files and full disks, and without secrets."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fake_server as fake
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth.errors import ModelError, StoreError
from synth.llm import Completion, Message, SamplingOptions
from synth.llm.ledger import Ledger
from synth.llm.litellm_backend import LiteLLMModel
from synth.llm.openai_backend import OpenAIModel
from synth.llm.recorder import CallRecord, RecordedModel, purpose
from synth.llm.scripted import ScriptedModel

ASK = [Message("system", "be short"), Message("user", "hello")]
OPTIONS = SamplingOptions(temperature=0.5, seed=3, grammar='root ::= "a"', prefill="It ")
KEY = "sentinel-key-4711"


def recorded(folder: Path, answers: list[str], ledger: Ledger | None = None, role: str = "coder") -> RecordedModel:
    return RecordedModel(ScriptedModel(answers), CallRecord(folder), ledger or Ledger(), role)


def texts(completions: list[Completion]) -> list[str]:
    return [c.text for c in completions]


def test_everything_about_a_call_is_recorded(tmp_path: Path) -> None:
    with purpose("coder/task", "0123456789ab"):
        recorded(tmp_path, ["one", "two"]).complete(ASK, 2, OPTIONS)
    entry = json.loads((tmp_path / "calls" / "000001.json").read_text(encoding="utf-8"))
    assert entry["schema_version"] == 1
    assert (entry["role"], entry["model"], entry["n"]) == ("coder", "scripted", 2)
    assert entry["prompt"] == {"template": "coder/task", "digest": "0123456789ab"}
    assert entry["messages"] == [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hello"},
    ]
    assert entry["options"] == {"temperature": 0.5, "seed": 3, "grammar": 'root ::= "a"', "prefill": "It "}
    assert [a["text"] for a in entry["answers"]] == ["one", "two"]
    assert entry["answers"][0]["usage"] == {"prompt_tokens": 0, "completion_tokens": 0}
    assert entry["answers"][0]["cost_usd"] == 0.0
    assert entry["latency_s"] >= 0
    transcript = (tmp_path / "transcript.md").read_text(encoding="utf-8")
    for words in ("coder/task", "be short", "hello", "It one", "It two"):
        assert words in transcript


def test_recorded_answers_are_given_out_again_in_order(tmp_path: Path) -> None:
    first = recorded(tmp_path, ["a", "b", "c", "d"])
    given_out = [texts(first.complete(ASK, 1, OPTIONS)) for _ in range(3)]
    assert given_out == [["a"], ["b"], ["c"]]
    ledger = Ledger()
    again = recorded(tmp_path, ["new"], ledger)
    assert [texts(again.complete(ASK, 1, OPTIONS)) for _ in range(4)] == [["a"], ["b"], ["c"], ["new"]]
    assert ledger.summary()["replayed"] == 3
    assert len(list((tmp_path / "calls").glob("*.json"))) == 4


def test_a_resumed_run_has_the_sums_of_one_that_was_not(tmp_path: Path) -> None:
    with fake.FakeServer(fake.ok) as server:
        whole = Ledger()
        model = OpenAIModel("gpt-4.1", server.address, KEY)
        for seed in range(2):
            RecordedModel(model, CallRecord(tmp_path / str(seed)), whole, "coder").complete(
                ASK, 3, SamplingOptions(seed=seed)
            )
        resumed = Ledger()
        for seed in range(2):
            RecordedModel(model, CallRecord(tmp_path / str(seed)), resumed, "coder").complete(
                ASK, 3, SamplingOptions(seed=seed)
            )
    assert len(server.bodies) == 2
    for name in ("calls", "tokens", "usd", "seconds"):
        assert resumed.summary()[name] == whole.summary()[name]
    assert whole.summary()["usd"] > 0


@pytest.mark.parametrize(
    ("messages", "n", "options", "role"),
    [
        ([*ASK, Message("user", "more")], 1, OPTIONS, "coder"),
        (ASK, 2, OPTIONS, "coder"),
        (ASK, 1, SamplingOptions(temperature=0.6, seed=3), "coder"),
        (ASK, 1, OPTIONS, "evaluator"),
    ],
    ids=["messages", "n", "options", "role"],
)
def test_another_call_is_not_answered_from_the_record(
    tmp_path: Path, messages: list[Message], n: int, options: SamplingOptions, role: str
) -> None:
    recorded(tmp_path, ["old"]).complete(ASK, 1, OPTIONS)
    other = recorded(tmp_path, ["new", "newer"], role=role)
    assert "old" not in texts(other.complete(messages, n, options))


def test_answers_that_came_before_a_fault_are_not_paid_for_twice(tmp_path: Path) -> None:
    behaviours = [fake.only_one] * 3 + [fake.fault(404, "gone")] * 2 + [fake.only_one]
    with fake.FakeServer(*behaviours) as server:
        model = OpenAIModel("some-model", server.address, KEY, parallel=1)
        first = RecordedModel(model, CallRecord(tmp_path), Ledger(), "coder")
        with pytest.raises(ModelError, match="gone"):
            first.complete(ASK, 5, SamplingOptions(seed=10))
        asked = len(server.bodies)
        ledger = Ledger()
        again = RecordedModel(model, CallRecord(tmp_path), ledger, "coder")
        found = texts(again.complete(ASK, 5, SamplingOptions(seed=10)))
        third = RecordedModel(model, CallRecord(tmp_path), Ledger(), "coder")
        assert texts(third.complete(ASK, 5, SamplingOptions(seed=10))) == found
    assert found[:3] == ["seed 10", "seed 11", "seed 12"]
    assert len(set(found)) == 5
    assert len(server.bodies) == asked + 2
    assert ledger.summary()["replayed"] == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"schema_version": 1}',
        "[1, 2]",
        "null",
        '{"schema_version": 99, "key": "k", "answers": []}',
        "\x00\xff",
    ],
)
def test_unreadable_files_are_set_aside(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    recorded(tmp_path, ["old"]).complete(ASK, 1, OPTIONS)
    file = tmp_path / "calls" / "000002.json"
    file.write_text(content, encoding="latin-1")
    foreign = tmp_path / "calls" / "notes.json"
    foreign.write_text("{}", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        again = recorded(tmp_path, ["new"])
    assert "000002" in caplog.text
    assert texts(again.complete(ASK, 1, OPTIONS)) == ["old"]
    assert texts(again.complete(ASK, 1, OPTIONS)) == ["new"]
    assert file.with_suffix(".unreadable").read_text(encoding="latin-1") == content
    assert foreign.with_suffix(".unreadable").exists()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0, exclude_max=True))
def test_a_file_cut_anywhere_is_never_replayed_wrongly(tmp_path: Path, share: float) -> None:
    folder = tmp_path / str(time.monotonic_ns())
    recorded(folder, ["the whole answer"]).complete(ASK, 1, OPTIONS)
    file = folder / "calls" / "000001.json"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    assert texts(recorded(folder, ["asked again"]).complete(ASK, 1, OPTIONS)) == ["asked again"]


def test_no_secret_reaches_the_run_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refusal = fake.fault(400, f"the key {KEY} may not do this")
    with fake.FakeServer(fake.ok, fake.ok, refusal) as server:
        address = server.address.replace("http://", f"http://user:{KEY}@")
        lines = []
        with caplog.at_level(logging.DEBUG, logger="synth"):
            for model in (OpenAIModel("m", address, KEY), LiteLLMModel("hosted_vllm/m", address, KEY)):
                wrapped = RecordedModel(model, CallRecord(tmp_path), Ledger(), "coder")
                wrapped.complete(ASK, 1, SamplingOptions())
        for model in (OpenAIModel("m", server.address, KEY), LiteLLMModel("hosted_vllm/m", server.address, KEY)):
            with pytest.raises(ModelError, match="may not do this") as caught:
                RecordedModel(model, CallRecord(tmp_path), Ledger(), "coder").complete(ASK, 2, SamplingOptions())
            lines.append(str(caught.value))
    written = [p.read_text(encoding="utf-8") for p in tmp_path.rglob("*") if p.is_file()]
    assert len(written) == 3
    assert server.headers[2]["authorization"] == f"Bearer {KEY}"
    assert not any(KEY in text for text in [*written, *lines, caplog.text])


def test_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    # A limit on the size of files is the disk that every machine can fill: writing beyond it is refused.
    program = f"""
import errno, resource, signal, sys
from pathlib import Path
from synth.errors import StoreError
from synth.llm import Message, SamplingOptions
from synth.llm.ledger import Ledger
from synth.llm.recorder import CallRecord, RecordedModel
from synth.llm.scripted import ScriptedModel
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
record = CallRecord(Path({str(tmp_path)!r}))
model = RecordedModel(ScriptedModel(["x" * 100_000], cycle=True), record, Ledger(), "coder")
model.complete([Message("user", "a")], 1, SamplingOptions())
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    model.complete([Message("user", "b")], 1, SamplingOptions())
except StoreError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("cannot write ")
    assert done.stdout.count("\n") == 1
    left = sorted(p.name for p in (tmp_path / "calls").iterdir())
    assert left == ["000001.json"]
    assert texts(recorded(tmp_path, ["new"]).complete([Message("user", "a")], 1, SamplingOptions())) == ["x" * 100_000]


def test_no_space_left_says_so(tmp_path: Path) -> None:
    full = Path("/dev/full")
    (tmp_path / "calls").mkdir()
    (tmp_path / "transcript.md").symlink_to(full)
    with pytest.raises(StoreError, match="disk is full"):
        recorded(tmp_path, ["a"]).complete(ASK, 1, OPTIONS)


def test_killed_while_writing_leaves_only_whole_files(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from synth.llm import Message, SamplingOptions
from synth.llm.ledger import Ledger
from synth.llm.recorder import CallRecord, RecordedModel
from synth.llm.scripted import ScriptedModel
record = CallRecord(Path({str(tmp_path)!r}))
model = RecordedModel(ScriptedModel(["y" * 200_000], cycle=True), record, Ledger(), "coder")
for number in range(100_000):
    model.complete([Message("user", str(number))], 1, SamplingOptions())
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("calls/*.json"))) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    count = len(list(tmp_path.glob("calls/*.json")))
    assert count >= 20
    again = recorded(tmp_path, [])
    for number in range(count):
        assert texts(again.complete([Message("user", str(number))], 1, SamplingOptions())) == ["y" * 200_000]
    assert not list(tmp_path.glob("calls/*.unreadable"))
