"""The providers whose keys are known by name: one table for choosing a model, finding its key, and error messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Provider:
    """A provider: the prefix of its models' names, the variable with its key, the model `auto` takes.

    `model` is None for a provider that `auto` does not choose by itself.
    """

    prefix: str
    variable: str
    model: str | None = None


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
    Provider("cohere", "COHERE_API_KEY"),
    Provider("together_ai", "TOGETHERAI_API_KEY"),
    Provider("fireworks_ai", "FIREWORKS_AI_API_KEY"),
    Provider("cerebras", "CEREBRAS_API_KEY"),
    Provider("perplexity", "PERPLEXITYAI_API_KEY"),
)


def provider_of(model: str) -> Provider | None:
    """The provider that a full model name such as `anthropic/claude-sonnet-4-5` begins with."""
    prefix, slash, _ = model.partition("/")
    return next((p for p in PROVIDERS if slash and p.prefix == prefix), None)
