"""From `--model` to a model. `auto`: an explicit setting, else a provider's key in the environment, else local."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from synth.errors import ModelError
from synth.llm.base import ChatModel
from synth.llm.faults import ATTEMPTS
from synth.llm.providers import PROVIDERS, Provider, provider_of

SETTING = "SYNTH_MODEL"
ATTEMPTS_SETTING = "SYNTH_MODEL_ATTEMPTS"  # most requests for one answer, before a server counts as unreachable
SERVER_KEY = "SYNTH_API_KEY"  # for --api-base, so that no provider's key goes to another server
_FORMS = (
    "auto, local, gguf:FILE, openai/NAME, PROVIDER/NAME (any of litellm's), scripted:PATH, manual, manual:FOLDER, "
    "random, or with --api-base the name of the server's model"
)


def resolve_model(
    name: str | None,
    api_base: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> ChatModel:
    """The model that a name stands for; nothing is contacted yet.

    Args:
        name: as given to `--model`; None and `auto` choose.
        api_base: address of an OpenAI-compatible server; names that stand for no model of this machine are its own.
        environment: where keys are looked up; the process's when None.
        folder: where the manual model exchanges its files.

    Raises:
        ModelError: no key for the model named, no weights, no such file; one line that says what to do.
    """
    variables = os.environ if environment is None else environment
    chosen = choose(name, variables, api_base)
    kind, _, rest = chosen.partition(":")
    if kind == "gguf" and rest:
        from synth.llm.local import LocalModel

        return LocalModel(Path(rest).expanduser())
    if kind == "scripted" and rest:
        from synth.llm.scripted import ScriptedModel

        return ScriptedModel.from_path(Path(rest).expanduser())
    if kind == "manual":
        from synth.llm.manual import ManualModel

        return ManualModel(Path(rest).expanduser() if rest else folder or Path("manual"))
    if chosen == "random":
        from synth.llm.random_model import RandomModel

        return RandomModel()
    if chosen == "local":
        from synth.llm.local import embedded_model

        return embedded_model()
    return _remote(chosen, variables) if api_base is None else _served(chosen, api_base, variables)


def choose(name: str | None, variables: Mapping[str, str], api_base: str | None = None) -> str:
    """The model's full name: `name` itself unless it is None or `auto`.

    Raises:
        ModelError: a server's address without the name of a model there.
    """
    if name and name != "auto":
        return name
    if variables.get(SETTING):
        return variables[SETTING]
    if api_base is not None:
        raise ModelError("--api-base needs --model: the name of a model that the server has")
    provider = _with_key(variables)
    return provider.model if provider is not None and provider.model is not None else "local"


def describe_choice(model: ChatModel, name: str | None = "auto", environment: Mapping[str, str] | None = None) -> str:
    """One line for the user: which model, and why it was chosen."""
    variables = os.environ if environment is None else environment
    weights = getattr(model, "weights", None)
    size = f"{weights.stat().st_size / 1e6:.0f} MB, " if isinstance(weights, Path) else ""
    if name and name != "auto":
        return f"{model.name} ({size}as asked for)"
    if variables.get(SETTING):
        return f"{model.name} ({size}from {SETTING})"
    provider = _with_key(variables)
    if provider is not None:
        return f"{model.name} (there is a key in {provider.variable})"
    return f"{model.name} ({size}free; no provider's key in the environment)"


def _with_key(variables: Mapping[str, str]) -> Provider | None:
    """The first provider that `auto` may choose and has a key for."""
    return next((p for p in PROVIDERS if p.model is not None and variables.get(p.variable)), None)


def _served(chosen: str, api_base: str, variables: Mapping[str, str]) -> ChatModel:
    """A model of the server at this address; `llamacpp/NAME` says that the server is llama.cpp's."""
    from synth.llm.openai_backend import OpenAIModel

    if not api_base.startswith(("http://", "https://")):
        raise ModelError(f"--api-base {api_base} is no address; it looks like http://127.0.0.1:8000/v1")
    prefix, _, rest = chosen.partition("/")
    model = rest if prefix in ("openai", "llamacpp") and rest else chosen
    key = variables.get(SERVER_KEY) or variables.get("OPENAI_API_KEY")
    llama_cpp = prefix == "llamacpp" and bool(rest)
    return OpenAIModel(model, api_base, key, llama_cpp=llama_cpp, attempts=_attempts(variables))


def _remote(chosen: str, variables: Mapping[str, str]) -> ChatModel:
    """A provider's model."""
    prefix, _, rest = chosen.partition("/")
    if not prefix or not rest:
        raise ModelError(f"unknown model '{chosen}': give {_FORMS}")
    provider = provider_of(chosen)
    key = variables.get(provider.variable) if provider is not None else None
    base = variables.get("OPENAI_BASE_URL") if prefix == "openai" else None
    if provider is not None and not key and base is None:
        raise ModelError(f"there is no key for {chosen}: set {provider.variable}, or use --model local")
    if prefix == "openai":
        from synth.llm.openai_backend import OpenAIModel

        return OpenAIModel(rest, base, key, attempts=_attempts(variables))
    from synth.llm.litellm_backend import LiteLLMModel

    return LiteLLMModel(chosen, api_key=key)


def _attempts(variables: Mapping[str, str]) -> int:
    text = variables.get(ATTEMPTS_SETTING) or str(ATTEMPTS)
    if not text.isdecimal() or int(text) < 1:
        raise ModelError(f"{ATTEMPTS_SETTING} is {text}; it must be a whole number from 1")
    return int(text)
