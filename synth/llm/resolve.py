"""From `--model` to a model. `auto`: an explicit setting, else a provider's key in the environment, else local."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from synth.errors import ModelError
from synth.llm.base import ChatModel

SETTING = "SYNTH_MODEL"


@dataclass(frozen=True)
class Provider:
    """A provider that `auto` knows: the variable with its key, and the model taken when only the key is there."""

    prefix: str
    variable: str
    model: str


# In the order in which `auto` looks for keys.
PROVIDERS = (
    Provider("openai", "OPENAI_API_KEY", "openai/gpt-4.1"),
    Provider("anthropic", "ANTHROPIC_API_KEY", "anthropic/claude-sonnet-4-5"),
    Provider("gemini", "GEMINI_API_KEY", "gemini/gemini-2.5-pro"),
    Provider("deepseek", "DEEPSEEK_API_KEY", "deepseek/deepseek-chat"),
    Provider("mistral", "MISTRAL_API_KEY", "mistral/mistral-large-latest"),
    Provider("groq", "GROQ_API_KEY", "groq/llama-3.3-70b-versatile"),
    Provider("openrouter", "OPENROUTER_API_KEY", "openrouter/openai/gpt-4.1"),
    Provider("xai", "XAI_API_KEY", "xai/grok-4"),
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
        api_base: address of an OpenAI-compatible server; the name is then that server's.
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

        return LocalModel(Path(rest))
    if kind == "scripted" and rest:
        from synth.llm.scripted import ScriptedModel

        return ScriptedModel.from_path(Path(rest))
    if kind == "manual":
        from synth.llm.manual import ManualModel

        return ManualModel(Path(rest) if rest else folder or Path("manual"))
    if chosen == "random":
        from synth.llm.random_model import RandomModel

        return RandomModel()
    if chosen == "local":
        from synth.llm.local import embedded_model

        return embedded_model()
    return _remote(chosen, api_base, variables)


def choose(name: str | None, variables: Mapping[str, str], api_base: str | None = None) -> str:
    """The model's full name: `name` itself unless it is None or `auto`."""
    if name and name != "auto":
        return name
    if variables.get(SETTING):
        return variables[SETTING]
    if api_base is not None:
        raise ModelError("--api-base needs --model: the name of a model that the server has")
    for provider in PROVIDERS:
        if variables.get(provider.variable):
            return provider.model
    return "local"


def describe_choice(model: ChatModel, name: str | None = "auto", environment: Mapping[str, str] | None = None) -> str:
    """One line for the user: which model, and why it was chosen."""
    variables = os.environ if environment is None else environment
    if name and name != "auto":
        return f"{model.name} (as asked for)"
    if variables.get(SETTING):
        return f"{model.name} (from {SETTING})"
    for provider in PROVIDERS:
        if variables.get(provider.variable):
            return f"{model.name} (there is a key in {provider.variable})"
    return f"{model.name} (embedded, free; there is no provider's key in the environment)"


def _remote(chosen: str, api_base: str | None, variables: Mapping[str, str]) -> ChatModel:
    prefix, _, rest = chosen.partition("/")
    if api_base is not None or (prefix == "openai" and rest):
        from synth.llm.openai_backend import OpenAIModel

        key = variables.get("OPENAI_API_KEY")
        base = api_base or variables.get("OPENAI_BASE_URL")
        if base is None and not key:
            raise ModelError(f"there is no key for {chosen}: set OPENAI_API_KEY, or use --model local")
        return OpenAIModel(rest if prefix == "openai" and rest else chosen, base, key)
    if not rest:
        raise ModelError(
            f"unknown model '{chosen}': give local, gguf:FILE, openai/NAME, PROVIDER/NAME (any of litellm's), "
            "scripted:PATH, manual, random, or a server's model with --api-base"
        )
    from synth.llm.litellm_backend import LiteLLMModel

    for provider in PROVIDERS:
        if provider.prefix == prefix and not variables.get(provider.variable):
            raise ModelError(f"there is no key for {chosen}: set {provider.variable}, or use --model local")
    return LiteLLMModel(chosen)
