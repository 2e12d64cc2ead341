"""The embedded model for real: llama.cpp's server with SmolLM2, its answers and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synth.errors import ModelError
from synth.llm import Message, SamplingOptions
from synth.llm.local import LocalModel, embedded_model, find_embedded_weights
from synth.llm.local_process import ServerProcess

PARIS = (Message("system", "Answer in one short sentence."), Message("user", "What is the capital of France?"))
TREES = (Message("user", "Tell me something about trees."),)


def weights() -> Path:
    found = find_embedded_weights()
    assert found is not None
    return found


def short(seed: int, **more: Any) -> SamplingOptions:
    return SamplingOptions(**{"temperature": 1.0, "max_tokens": 16, "seed": seed, **more})


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text(encoding="ascii").split()]


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    built = LocalModel(weights(), servers=1)
    yield built
    built.close()


def test_several_answers_that_cost_nothing(model: LocalModel) -> None:
    answers = model.complete(PARIS, 3, short(1))
    assert len({a.text for a in answers}) > 1
    for answer in answers:
        assert answer.text
        assert answer.cost_usd == 0.0
        assert answer.usage.prompt_tokens > 20
        assert 0 < answer.usage.completion_tokens <= 16
        assert answer.finish_reason in ("stop", "length")
    (cold,) = model.complete(PARIS, 1, short(1, temperature=0.0))
    assert "Paris" in cold.text


def test_the_prompt_is_not_read_again_for_each_answer(model: LocalModel) -> None:
    long = (Message("user", "The joint has an angle. " * 60),)
    model.complete(long, 1, short(1, max_tokens=1))
    server = model._servers[0]
    assert server._process is not None
    before = cpu_seconds(server._process.pid)
    model.complete(long, 1, short(2, max_tokens=1))
    again = cpu_seconds(server._process.pid) - before
    model.complete((Message("user", "Another. " + long[0].content),), 1, short(2, max_tokens=1))
    fresh = cpu_seconds(server._process.pid) - before - again
    # Seconds of one thread's work, not of the clock: the other load of the machine does not matter.
    assert again < fresh / 3


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_grammar_holds_the_answer(model: LocalModel) -> None:
    grammar = 'root ::= "x = " ("cos" | "sin") "(" [0-9] "." [0-9]{2} ")"'
    for answer in model.complete(PARIS, 3, short(5, grammar=grammar, max_tokens=40)):
        assert re.fullmatch(r"x = (cos|sin)\([0-9]\.[0-9]{2}\)", answer.text)


def test_a_json_schema_holds_the_answer(model: LocalModel) -> None:
    schema = {
        "type": "object",
        "properties": {"verdict": {"type": "string", "enum": ["keep", "drop"]}},
        "required": ["verdict"],
        "additionalProperties": False,
    }
    (answer,) = model.complete(PARIS, 1, short(5, json_schema=schema, max_tokens=60))
    assert re.fullmatch(r'\{\s*"verdict"\s*:\s*"(keep|drop)"\s*\}', answer.text.strip())


def test_a_prefill_is_continued_and_not_repeated(model: LocalModel) -> None:
    (answer,) = model.complete(PARIS, 1, short(1, prefill="The capital of France is the city of", temperature=0.0))
    assert answer.text.startswith(" Paris")
    (answer,) = model.complete(PARIS, 1, short(1, prefill="    a = ", grammar='root ::= "1" [0-9] "2\\n"'))
    assert re.fullmatch(r"1[0-9]2\n", answer.text)


def test_a_seed_gives_the_same_answer_whatever_was_asked_before(model: LocalModel) -> None:
    whole = [a.text for a in model.complete(PARIS, 3, short(40))]
    started = [a.text for a in model.complete(PARIS, 2, short(40, prefill="In"))]
    model.complete(TREES, 2, short(7))
    model.complete((Message("user", "Tell me something about tables."),), 1, short(7))  # takes PARIS's place
    with_two = LocalModel(weights(), servers=2)
    try:
        with_two.complete(TREES, 1, short(3))
        # Another process, another order, one by one instead of together.
        assert [a.text for a in with_two.complete(PARIS, 2, short(40, prefill="In"))] == started
        assert [with_two.complete(PARIS, 1, short(40 + i))[0].text for i in (2, 1, 0)] == whole[::-1]
    finally:
        with_two.close()
    assert [a.text for a in model.complete(PARIS, 3, short(40))] == whole


def test_many_threads_ask_at_once(model: LocalModel) -> None:
    wanted = {seed: model.complete(PARIS, 1, short(seed))[0].text for seed in range(4)}
    found: dict[int, str] = {}

    def one(seed: int) -> None:
        found[seed] = model.complete(PARIS, 1, short(seed))[0].text

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted


def test_too_long_a_conversation_is_one_clear_line(model: LocalModel) -> None:
    with pytest.raises(ModelError, match="too long") as caught:
        model.complete((Message("user", "word " * 6000),), 1, short(1))
    assert "\n" not in str(caught.value)
    assert model.complete(PARIS, 1, short(1))[0].text


def test_the_server_outlives_the_thread_that_started_it_and_ends_with_close() -> None:
    model = embedded_model()
    thread = threading.Thread(target=lambda: model.complete(PARIS, 1, short(1, max_tokens=1)))
    thread.start()
    thread.join()
    (pid,) = (s._process.pid for s in model._servers if s._process is not None)
    time.sleep(1.5)  # longer than the server's looks after its parent
    assert alive(pid)
    assert model.complete(PARIS, 1, short(1))[0].text
    model.close()
    assert not alive(pid)
    assert model.complete(PARIS, 1, short(1))[0].text  # it may be asked again
    model.close()


def test_a_killed_server_is_one_clear_line_and_is_started_again(model: LocalModel) -> None:
    model.complete(PARIS, 1, short(1))
    process = model._servers[0]._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(ModelError, match="has ended") as caught:
        model.complete(PARIS, 1, short(1))
    assert "\n" not in str(caught.value)
    assert model.complete(PARIS, 1, short(1))[0].text


@pytest.mark.parametrize("forked", [False, True], ids=["alone", "with a fork that holds the pipe open"])
def test_the_server_ends_with_a_killed_parent(forked: bool) -> None:
    program = f"""
import os, time
from synth.llm import Message, SamplingOptions
from synth.llm.local import LocalModel, find_embedded_weights
model = LocalModel(find_embedded_weights(), servers=1)
model.complete([Message("user", "hello")], 1, SamplingOptions(max_tokens=1))
child = os.fork() if {forked} else 0
if {forked} and child == 0:
    time.sleep(60)
    os._exit(0)
print(child, model._servers[0]._process.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child, pid = (int(word) for word in parent.stdout.readline().split())
    assert alive(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    gone = not alive(pid)
    for left in (child, 0 if gone else pid):
        if left:
            os.kill(left, signal.SIGKILL)
    assert gone


def test_the_key_is_needed_and_not_to_be_seen() -> None:
    import httpx

    process = ServerProcess(weights(), "sentinel-key-4711")
    try:
        request = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        url = f"{process.address}/v1/chat/completions"
        assert process.address.startswith("http://127.0.0.1:")
        assert httpx.post(url, json=request).status_code == 401
        allowed = httpx.post(url, json=request, headers={"Authorization": "Bearer sentinel-key-4711"}, timeout=60.0)
        assert allowed.status_code == 200
        for name in ("cmdline", "environ"):
            assert b"sentinel-key" not in Path(f"/proc/{process.pid}/{name}").read_bytes()
    finally:
        process.close()


def test_keys_of_providers_do_not_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sentinel-key-4711")
    process = ServerProcess(weights(), "k")
    try:
        assert b"sentinel-key" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    finally:
        process.close()


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    before = set(children(os.getpid()))
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    model = LocalModel(broken, servers=1)
    with pytest.raises(ModelError, match=r"broken\.gguf could not be loaded") as caught:
        model.complete(PARIS, 1, short(1))
    assert "\n" not in str(caught.value)
    assert set(children(os.getpid())) <= before
