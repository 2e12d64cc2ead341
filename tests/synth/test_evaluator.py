"""The Evaluator: what it makes of a model's answer, and what it falls back on."""

from __future__ import annotations

import json
import random

import pytest

from sandboxes.base import Checkpoint, ComponentStats, MemberResult
from synth.candidate import Candidate
from synth.evaluator import VERDICTS, Evaluator, Reflection, read_answer, verdict_grammar, verdict_schema
from synth.evidence import Evidence, gather_evidence
from synth.gbnf import sample
from synth.llm.random_model import RandomModel
from synth.llm.scripted import ScriptedModel
from synth.prompting import Prompts
from synth.task import load_task

TASK = load_task("pendulum_swingup")
SOURCE = "def compute_reward(angle):\n    return angle, {'up': angle}\n"


def evidence() -> Evidence:
    up, calm = ComponentStats(0.5, 0.3, 0.0, 1.0, 0.5), ComponentStats(-0.1, 0.0, -0.1, -0.1, 0.01)
    points = tuple(Checkpoint(100 * i, 0.1 * i, 0.2, 200.0, {"up": up, "calm": calm}) for i in range(1, 5))
    return gather_evidence([MemberResult("g0-00", 0, 0.4, points, 400)])


def reflect(answer: str) -> tuple[Reflection, ScriptedModel]:
    model = ScriptedModel([answer])
    found = Evaluator(model, TASK, Prompts()).reflect(Candidate("g0-00", 0, "new", "", SOURCE), evidence(), 7)
    return found, model


GOOD = {"components": {"up": "rescale", "calm": "drop"}, "reflection": "It swings\nbut does not stop."}


@pytest.mark.parametrize("around", ["{}", "Sure! {{a set}}\n```json\n{}\n```\nGood luck {{}}", '{{"x": 1}} then {}'])
def test_the_verdict_is_found_in_whatever_surrounds_it(around: str) -> None:
    found, _ = reflect(
        around.replace("{{", "\0")
        .replace("}}", "\1")
        .replace("{}", json.dumps(GOOD))
        .replace("\0", "{")
        .replace("\1", "}")
    )
    assert found == Reflection("It swings but does not stop.", {"up": "rescale", "calm": "drop"}, by_model=True)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I would keep everything.",
        '{"components": {"up": "rescale"',
        '{"components": {"up": "improve"}}',
        '{"components": ["up"]}',
        '{"reflection": "good"}',
        "{" * 3000,
        "[" * 100000,
    ],
)
def test_an_answer_of_no_use_is_replaced_by_the_rules(answer: str) -> None:
    found, _ = reflect(answer)
    assert not found.by_model
    assert found.verdicts == {"up": "keep", "calm": "rewrite"}
    assert "calm has the same value everywhere" in found.text


def test_components_left_out_follow_the_rules_and_strangers_are_ignored() -> None:
    found, _ = reflect('{"components": {"up": "drop", "speed": "keep"}, "extra": 1}')
    assert found.verdicts == {"up": "drop", "calm": "rewrite"}
    assert found.by_model


def test_the_question_holds_the_code_the_numbers_and_a_schema() -> None:
    _, model = reflect(json.dumps(GOOD))
    messages, options = model.requests[0]
    assert [m.role for m in messages] == ["system", "user"]
    for part in (SOURCE.strip(), TASK.description, "[0.1, 0.2, 0.3, 0.4]", "rule of thumb: rewrite"):
        assert part in messages[1].content, part
    assert options.seed == 7
    assert options.grammar is None
    assert options.json_schema == verdict_schema(["up", "calm"])


def test_a_model_under_a_grammar_answers_with_verdicts() -> None:
    candidate, seen = Candidate("g0-00", 0, "new", "", SOURCE), set()
    for seed in range(20):
        found = Evaluator(RandomModel(), TASK, Prompts()).reflect(candidate, evidence(), seed)
        assert found.by_model
        assert list(found.verdicts) == ["up", "calm"]
        seen |= set(found.verdicts.values())
    assert seen == set(VERDICTS)


@pytest.mark.parametrize("names", [["a"], ["a", "b_2", "ccc"], ['odd "name"\\', "line\nbreak", "größe"]])
def test_grammar_and_schema_speak_of_the_same_components(names: list[str]) -> None:
    answer = read_answer(sample(verdict_grammar(names), random.Random(0)))
    assert answer is not None
    assert list(answer.components) == names
    schema = verdict_schema(names)["properties"]["components"]
    assert schema["required"] == names
    assert all(schema["properties"][n]["enum"] == list(VERDICTS) for n in names)
