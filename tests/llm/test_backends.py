"""Both backends for remote models, against a real server over real HTTP that fails in every way servers fail."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Protocol

import fake_server as fake
import pytest

from synth.errors import ModelError
from synth.llm import ChatModel, Message, SamplingOptions
from synth.llm.faults import ATTEMPTS, LONGEST_WAIT_S, PartialAnswersError
from synth.llm.litellm_backend import LiteLLMModel
from synth.llm.openai_backend import OpenAIModel

KEY = "sentinel-key-4711"
ASK = [Message("system", "be short"), Message("user", "hello")]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


class Make(Protocol):
    def __call__(self, address: str, **more: Any) -> ChatModel: ...


class Pauses:
    """A sleep that does not wait and remembers what it was asked for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float, /) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture(params=["openai", "litellm"])
def make(request: pytest.FixtureRequest, pauses: Pauses) -> Make:
    def build(address: str, **more: Any) -> ChatModel:
        settings = {"sleep": pauses, "timeout_s": 20.0, **more}
        if request.param == "openai":
            return OpenAIModel("some-model", address, KEY, **settings)
        return LiteLLMModel("hosted_vllm/some-model", address, KEY, **settings)

    return build


def test_messages_and_options_arrive(make: Make) -> None:
    options = SamplingOptions(temperature=0.25, max_tokens=77, seed=5, json_schema=SCHEMA)
    with fake.FakeServer(fake.ok) as server:
        (answer,) = make(server.address).complete(ASK, 1, options)
    body = server.bodies[0]
    assert answer.text == "answer 0.0"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 10)
    assert answer.finish_reason == "stop"
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert body["model"] == "some-model"
    assert body["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "hello"}]
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.25, 77, 5)
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA


def test_one_request_brings_several_answers(make: Make) -> None:
    with fake.FakeServer(fake.ok) as server:
        answers = make(server.address).complete(ASK, 4, SamplingOptions(seed=9))
    assert [a.text for a in answers] == [f"answer 0.{i}" for i in range(4)]
    assert len(server.bodies) == 1
    # The prompt was read once: its tokens are divided over the answers and sum to what the server counted.
    assert sum(a.usage.prompt_tokens for a in answers) == 100
    assert sum(a.usage.completion_tokens for a in answers) == 40


def test_server_that_ignores_n_is_asked_one_by_one_with_a_seed_each(make: Make) -> None:
    with fake.FakeServer(fake.only_one) as server:
        model = make(server.address)
        first = model.complete(ASK, 5, SamplingOptions(seed=30))
        second = model.complete(ASK, 3, SamplingOptions(seed=70))
    assert [a.text for a in first] == [f"seed {30 + i}" for i in range(5)]
    assert [a.text for a in second] == [f"seed {70 + i}" for i in range(3)]
    assert sum("n" in body for body in server.bodies) == 1  # it is not asked again for what it cannot do


def test_server_that_refuses_n_is_asked_one_by_one(make: Make) -> None:
    with fake.FakeServer(fake.refuses("n", "Unsupported parameter: 'n' is not supported with this model.")) as server:
        answers = make(server.address).complete(ASK, 3, SamplingOptions())
    assert len({a.text for a in answers}) == 3


@pytest.mark.parametrize("name", ["temperature", "seed", "response_format"])
def test_refused_option_is_left_out(make: Make, name: str) -> None:
    options = SamplingOptions(temperature=0.5, seed=1, json_schema=SCHEMA)
    message = f"Unsupported value: '{name}' does not support this with this model."
    with fake.FakeServer(fake.refuses(name, message)) as server:
        model = make(server.address)
        model.complete(ASK, 1, options)
        model.complete(ASK, 1, options)
    assert [name in body for body in server.bodies] == [True, False, False]


def test_limit_on_tokens_goes_by_the_name_the_server_knows(make: Make) -> None:
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    with fake.FakeServer(fake.refuses("max_tokens", message)) as server:
        make(server.address).complete(ASK, 1, SamplingOptions(max_tokens=50))
    assert server.bodies[-1]["max_completion_tokens"] == 50
    assert "max_tokens" not in server.bodies[-1]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (fake.fault(401, f"Incorrect API key provided: {KEY}", "invalid_api_key"), "key was not accepted"),
        (fake.fault(403, "your region may not use this"), "your region may not use this"),
        (fake.fault(404, "no such model"), "no such model"),
        (fake.fault(400, "This model's maximum context length is 10 tokens.", "context_length_exceeded"), "too long"),
        (fake.fault(429, "You exceeded your current quota", "insufficient_quota"), "exceeded your current quota"),
    ],
    ids=["key", "permission", "model", "context", "quota"],
)
def test_hopeless_faults_are_not_tried_again(
    make: Make, pauses: Pauses, behaviour: fake.Behaviour, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with fake.FakeServer(behaviour) as server, pytest.raises(ModelError) as caught:
        make(server.address).complete(ASK, 1, SamplingOptions())
    line = str(caught.value)
    assert len(server.bodies) == 1
    assert pauses.seconds == []
    assert words in line
    assert "some-model" in line
    assert "\n" not in line
    assert KEY not in line
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "behaviour",
    [fake.fault(429), fake.fault(500), fake.fault(502), fake.fault(503), fake.fault(529), fake.cut],
    ids=["429", "500", "502", "503", "529", "cut"],
)
def test_passing_faults_are_tried_again(make: Make, pauses: Pauses, behaviour: fake.Behaviour) -> None:
    with fake.FakeServer(behaviour, behaviour, fake.answer("at last")) as server:
        (answer,) = make(server.address).complete(ASK, 1, SamplingOptions())
    assert answer.text == "at last"
    assert len(server.bodies) == 3
    assert len(pauses.seconds) == 2
    assert 0 < pauses.seconds[0] < pauses.seconds[1]


def test_silent_server_is_tried_again(make: Make, pauses: Pauses) -> None:
    with fake.FakeServer(fake.hang, fake.answer("awake")) as server:
        (answer,) = make(server.address, timeout_s=0.5).complete(ASK, 1, SamplingOptions())
    assert answer.text == "awake"
    assert len(pauses.seconds) == 1


def test_dead_server_ends_in_one_line(make: Make, pauses: Pauses) -> None:
    with fake.FakeServer(fake.fault(503, "overloaded")) as server, pytest.raises(ModelError, match="overloaded") as up:
        make(server.address).complete(ASK, 1, SamplingOptions())
    assert len(server.bodies) == ATTEMPTS
    assert sum(pauses.seconds) <= LONGEST_WAIT_S
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    with pytest.raises(ModelError, match="check the address") as down:
        make(nobody).complete(ASK, 1, SamplingOptions())
    assert "\n" not in str(up.value) + str(down.value)


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [(lambda: "7", 7, 7), (lambda: formatdate(time.time() + 30, usegmt=True), 20, 30)],
    ids=["seconds", "date"],
)
def test_server_says_how_long_to_wait(
    make: Make, pauses: Pauses, value: Callable[[], str], least: float, most: float
) -> None:
    limited = fake.fault(429, "slow down", headers={"Retry-After": value()})
    with fake.FakeServer(limited, fake.ok) as server:
        make(server.address).complete(ASK, 1, SamplingOptions())
    assert len(pauses.seconds) == 1
    assert least <= pauses.seconds[0] <= most


def test_too_long_a_wait_is_refused(make: Make, pauses: Pauses) -> None:
    limited = fake.fault(429, "daily limit", headers={"Retry-After": "86400"})
    with fake.FakeServer(limited) as server, pytest.raises(ModelError, match="asks to wait 86400 s"):
        make(server.address).complete(ASK, 1, SamplingOptions())
    assert len(server.bodies) == 1
    assert pauses.seconds == []


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (fake.answer(""), "stop"),
        (fake.answer(None), "stop"),
        (fake.answer("", "content_filter"), "content_filter"),
        (fake.answer("", "length"), "length"),
    ],
    ids=["empty", "null", "filtered", "length"],
)
def test_empty_answers_are_answers(make: Make, behaviour: fake.Behaviour, reason: str) -> None:
    with fake.FakeServer(behaviour) as server:
        (answer,) = make(server.address).complete(ASK, 1, SamplingOptions())
    assert (answer.text, answer.finish_reason) == ("", reason)
    assert len(server.bodies) == 1


def test_web_page_is_no_answer(make: Make) -> None:
    with fake.FakeServer(fake.page) as server, pytest.raises(ModelError) as caught:
        make(server.address).complete(ASK, 1, SamplingOptions())
    assert "\n" not in str(caught.value)


def test_answers_that_came_before_a_fault_are_kept(make: Make) -> None:
    refused = fake.fault(404, "gone")

    def after_three(handler: fake.Handler, number: int, body: dict[str, Any]) -> None:
        (fake.only_one if number < 3 else refused)(handler, number, body)

    with fake.FakeServer(after_three) as server, pytest.raises(PartialAnswersError, match="gone") as caught:
        make(server.address, parallel=1).complete(ASK, 5, SamplingOptions(seed=1))
    assert len(caught.value.answers) == 3
    assert "3 of 5 answers came" in str(caught.value)


def test_requests_run_side_by_side_up_to_the_limit(make: Make) -> None:
    together, most = 0, 0

    def counted(handler: fake.Handler, number: int, body: dict[str, Any]) -> None:
        nonlocal together, most
        with handler.fake.lock:
            together += 1
            most = max(most, together)
        time.sleep(0.1)
        with handler.fake.lock:
            together -= 1
        fake.only_one(handler, number, body)

    with fake.FakeServer(counted) as server:
        answers = make(server.address, parallel=3).complete(ASK, 9, SamplingOptions(seed=0))
    assert [a.text for a in answers] == [f"seed {i}" for i in range(9)]
    assert most == 3


def test_prices(pauses: Pauses) -> None:
    with fake.FakeServer(fake.ok) as server:
        known = OpenAIModel("gpt-4.1", server.address, KEY, sleep=pauses).complete(ASK, 2, SamplingOptions())
        here = OpenAIModel("some-model", server.address, KEY, sleep=pauses).complete(ASK, 1, SamplingOptions())
        unknown = LiteLLMModel("hosted_vllm/some-model", server.address, KEY).complete(ASK, 1, SamplingOptions())
        # The last slash separates litellm's provider from the name that the server is given.
        priced = LiteLLMModel("openai/gpt-4.1", server.address, KEY).complete(ASK, 1, SamplingOptions())
    # litellm's own calculation is the reference.
    import litellm

    parts = litellm.cost_per_token("gpt-4.1", prompt_tokens=100, completion_tokens=20)
    assert sum(a.cost_usd or 0.0 for a in known) == pytest.approx(sum(parts), rel=1e-9)
    parts = litellm.cost_per_token("gpt-4.1", prompt_tokens=100, completion_tokens=10)
    assert priced[0].cost_usd == pytest.approx(sum(parts), rel=1e-9)
    assert here[0].cost_usd == 0.0
    assert unknown[0].cost_usd is None


def test_uncounted_tokens_are_not_free(pauses: Pauses) -> None:
    with fake.FakeServer(fake.without_usage) as server:
        (paid,) = OpenAIModel("gpt-4.1", server.address, KEY, sleep=pauses).complete(ASK, 1, SamplingOptions())
        (free,) = OpenAIModel("some-model", server.address, KEY, sleep=pauses).complete(ASK, 1, SamplingOptions())
    assert paid.text == "uncounted"
    assert (paid.cost_usd, free.cost_usd) == (None, 0.0)


def test_no_choices_is_an_empty_answer(pauses: Pauses) -> None:
    with fake.FakeServer(fake.no_choices) as server:
        (answer,) = OpenAIModel("some-model", server.address, KEY, sleep=pauses).complete(ASK, 1, SamplingOptions())
    assert (answer.text, answer.finish_reason) == ("", None)


def test_llama_cpp_servers_get_grammar_and_prefill(pauses: Pauses) -> None:
    options = SamplingOptions(grammar='root ::= "a"', prefill="It begins", seed=4)
    with fake.FakeServer(fake.answer("It begins well"), fake.answer(" badly"), fake.ok) as server:
        model = OpenAIModel("some-model", server.address, KEY, llama_cpp=True, sleep=pauses)
        # Some versions give the prefill back with the answer, others do not.
        assert {a.text for a in model.complete(ASK, 2, options)} == {" well", " badly"}
        OpenAIModel("some-model", server.address, KEY, sleep=pauses).complete(ASK, 1, options)
    assert model.supports_grammar
    assert model.supports_prefill
    assert sorted(body["seed"] for body in server.bodies[:2]) == [4, 5]
    for body in server.bodies[:2]:
        assert body["grammar"] == 'root ::= "a"'
        assert body["messages"][-1] == {"role": "assistant", "content": "It begins"}
    assert "grammar" not in server.bodies[2]
    assert server.bodies[2]["messages"][-1]["role"] == "user"


def test_interrupt_does_not_wait_for_requests_in_flight() -> None:
    program = """
import os, signal, sys, threading
from synth.llm import Message, SamplingOptions
from synth.llm.openai_backend import OpenAIModel
model = OpenAIModel("m", sys.argv[1], "k", timeout_s=600.0, llama_cpp=True)
threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    model.complete([Message("user", "hello")], 4, SamplingOptions())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with fake.FakeServer(fake.hang) as server:
        # The server lets go after 60 s at the earliest: a program that waits for its requests runs into this limit.
        done = subprocess.run(
            [sys.executable, "-c", program, server.address], capture_output=True, text=True, timeout=45.0, check=False
        )
    assert done.stdout == "interrupted\n"


def test_importing_the_package_imports_no_sdk() -> None:
    program = """
import sys
import synth.llm
print(sorted({"openai", "litellm", "pydantic", "torch", "yaml", "httpx", "xllamacpp"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
