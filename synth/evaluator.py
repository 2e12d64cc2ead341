"""The Evaluator: evidence about a trained reward becomes a reflection in words and a verdict for each component."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from synth.candidate import Candidate
from synth.evidence import Evidence
from synth.gbnf import Node, alt, render, seq
from synth.llm.base import ChatModel, Message, SamplingOptions
from synth.llm.recorder import purpose
from synth.prompting import Prompts
from synth.task import Task

VERDICTS = ("keep", "rescale", "rewrite", "drop")
_REFLECTION_TOKENS = 1500


@dataclass(frozen=True)
class Reflection:
    """What the Evaluator says. `by_model` is False where its answer could not be used and the rules spoke instead."""

    text: str
    verdicts: dict[str, str]
    by_model: bool


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")
    components: dict[str, Any]
    reflection: str | None = ""


class Evaluator:
    """Asks a model to read the evidence; a model that needs a grammar gives verdicts only."""

    def __init__(self, model: ChatModel, task: Task, prompts: Prompts) -> None:
        self.model, self.task, self.prompts = model, task, prompts

    def reflect(self, candidate: Candidate, evidence: Evidence, seed: int) -> Reflection:
        """Reflection on a trained candidate; components the model leaves out get the rule's advice."""
        rules = {c.name: c.advice for c in evidence.components}
        names = list(rules)
        small = self.model.supports_grammar
        template = "evaluator/compact_reflect" if small else "evaluator/reflect"
        question = self.prompts.render(template, task=self.task, code=candidate.source, evidence=evidence)
        messages = [Message("system", self.prompts.render("evaluator/system").text), Message("user", question.text)]
        options = SamplingOptions(
            temperature=0.5 if small else 1.0,
            seed=seed,
            max_tokens=_REFLECTION_TOKENS,
            grammar=render(verdict_grammar(names)) if small else None,
            json_schema=None if small else verdict_schema(names),
        )
        with purpose(question.template, question.digest):
            answer = read_answer(self.model.complete(messages, 1, options)[0].text)
        if answer is None:
            return Reflection(" ".join(evidence.signs), rules, by_model=False)
        said = {name: answer.components.get(name) for name in names}
        verdicts = {name: str(v) if v in VERDICTS else rules[name] for name, v in said.items()}
        text = " ".join((answer.reflection or "").split()) or " ".join(evidence.signs)
        return Reflection(text, verdicts, by_model=any(v in VERDICTS for v in said.values()))


def verdict_grammar(names: list[str]) -> Node:
    """JSON with one of the verdicts for every component."""
    parts: list[Node | str] = ['{"components": {']
    for index, name in enumerate(names):
        parts += [", " if index else "", f"{json.dumps(name)}: ", alt(f'"{v}"' for v in VERDICTS)]
    return seq(*parts, "}}")


def verdict_schema(names: list[str]) -> dict[str, Any]:
    """The same as a JSON schema, with room for the reflection."""
    components = {
        "type": "object",
        "properties": {name: {"type": "string", "enum": list(VERDICTS)} for name in names},
        "required": names,
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"components": components, "reflection": {"type": "string"}},
        "required": ["components", "reflection"],
        "additionalProperties": False,
    }


def read_answer(text: str) -> _Answer | None:
    """The first JSON object in the text that is a verdict; None when there is none."""
    for start in (m.start() for m in re.finditer(r"\{", text)):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, start)
            return _Answer.model_validate(value)
        except (ValueError, ValidationError, RecursionError):
            continue
    return None
