"""The Coder with real workers: repair with the exact error, duplicates, answers without code, all failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.base import Failure
from sandboxes.pool import Pool
from synth.candidate import Candidate
from synth.coder import Coder
from synth.evaluator import Evaluator
from synth.llm.random_model import RandomModel
from synth.llm.scripted import ScriptedModel
from synth.prompting import Prompts
from synth.search import Search, Silent
from synth.store import RunStore
from synth.strategies import Budget, Eureka
from synth.task import load_task
from synth.writers import Context, FreeWriter, GrammarWriter, make_writer

TASK = load_task("pendulum_swingup")
UP = "import torch\n\n\ndef compute_reward(angle):\n    up = torch.cos(angle)\n    return up, {'up': up}\n"
UP_RENAMED = (
    "import torch\ndef compute_reward(angle):\n    # the same\n    h = torch.cos(angle)\n    return h, {'up': h}\n"
)
UP_OTHERWISE = (
    "import torch\ndef compute_reward(angle):\n    up = torch.sin(angle + 1.5707963)\n    return up, {'up': up}\n"
)
SLOW = "import torch\ndef compute_reward(angular_velocity):\n    s = -angular_velocity.abs()\n    return s, {'s': s}"
TYPO = "import torch\ndef compute_reward(angel):\n    up = torch.cos(angel)\n    return up, {'up': up}\n"
NUMBER = (
    "import torch\ndef compute_reward(angle):\n    up = torch.cos(angle)\n    return up, {'up': up, 'bonus': 1.0}\n"
)
NAN = "import torch\ndef compute_reward(angle):\n    r = torch.sqrt(-torch.abs(angle) - 1.0)\n    return r, {'r': r}\n"


def fenced(source: str) -> str:
    return f"Here it is.\n```python\n{source.rstrip()}\n```\n"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool("cpu", shards=1) as pool:
        yield pool


def coder(pool: Pool, *answers: str, repair_rounds: int = 2) -> tuple[Coder, ScriptedModel]:
    model = ScriptedModel([fenced(a) if "def " in a else a for a in answers])
    return Coder(FreeWriter(model, TASK, Prompts()), TASK, pool, repair_rounds), model


def kinds(candidates: list[Candidate]) -> list[list[Failure]]:
    return [[p.kind for p in c.problems] for c in candidates]


@pytest.mark.parametrize(
    ("broken", "kind"), [(TYPO, Failure.UNKNOWN_FIELD), (NUMBER, Failure.DTYPE), (NAN, Failure.NON_FINITE)]
)
def test_the_exact_error_goes_back_to_the_model(pool: Pool, broken: str, kind: Failure) -> None:
    bare, _ = coder(pool, broken, repair_rounds=0)
    problem = bare.propose(0, 1, 3, Context())[0].problems[0]
    assert problem.kind in (kind, Failure.RETURN)

    repairing, model = coder(pool, broken, UP)
    (candidate,) = repairing.propose(0, 1, 3, Context())
    assert candidate.valid
    assert candidate.repairs == 1
    assert candidate.source == UP
    first, second = (messages for messages, _ in model.requests)
    assert second[: len(first)] == first
    assert (second[-2].role, second[-2].content) == ("assistant", fenced(broken))
    assert second[-1].role == "user"
    assert problem.message in second[-1].content


def test_a_second_repair_speaks_of_the_second_error(pool: Pool) -> None:
    repairing, model = coder(pool, TYPO, NUMBER, UP)
    (candidate,) = repairing.propose(0, 1, 0, Context())
    assert (candidate.valid, candidate.repairs) == (True, 2)
    last = model.requests[2][0]
    assert [m.role for m in last] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "angel" in last[3].content
    assert "bonus" in last[5].content
    assert "angel" not in last[5].content


def test_what_stays_broken_keeps_its_last_problem(pool: Pool) -> None:
    repairing, model = coder(pool, TYPO, TYPO, NUMBER)
    (candidate,) = repairing.propose(0, 1, 0, Context())
    assert not candidate.valid
    assert candidate.source == NUMBER
    assert "bonus" in candidate.problems[0].message
    assert len(model.requests) == 3


def test_only_the_broken_ones_are_repaired(pool: Pool) -> None:
    repairing, model = coder(pool, UP, TYPO, SLOW)
    found = repairing.propose(2, 2, 0, Context())
    assert [c.id for c in found] == ["g2-00", "g2-01"]
    assert [c.repairs for c in found] == [0, 1]
    assert all(c.valid and c.report is not None and c.report.components for c in found)
    assert len(model.requests) == 2


def test_duplicates_by_source_and_by_values(pool: Pool) -> None:
    proposing, _ = coder(pool, UP, UP_RENAMED, UP_OTHERWISE, SLOW, UP)
    found = proposing.propose(0, 4, 0, Context())
    assert kinds(found) == [[], [Failure.DUPLICATE], [Failure.DUPLICATE], []]
    assert "g0-00" in found[1].problems[0].message
    (later,) = proposing.propose(1, 1, 0, Context())
    assert kinds([later]) == [[Failure.DUPLICATE]]


def test_candidates_remembered_from_elsewhere_are_duplicates(pool: Pool) -> None:
    (known,) = coder(pool, UP)[0].propose(0, 1, 0, Context())
    other, _ = coder(pool, UP_RENAMED)
    other.remember([known])
    assert kinds(other.propose(1, 1, 0, Context())) == [[Failure.DUPLICATE]]


@pytest.mark.parametrize("answer", ["", "I cannot help with that.", "```python\n```"])
def test_answers_without_code(pool: Pool, answer: str) -> None:
    repairing, model = coder(pool, answer, UP)
    (candidate,) = repairing.propose(0, 1, 0, Context())
    assert candidate.valid
    assert "```python block" in model.requests[1][0][-1].content
    (lost,) = coder(pool, answer, repair_rounds=0)[0].propose(0, 1, 0, Context())
    assert kinds([lost]) == [[Failure.NO_CODE]]


def test_errors_of_a_lost_generation_reach_the_next_prompt(pool: Pool, tmp_path: Path) -> None:
    answers = [fenced(TYPO)] * 2 + [fenced(NUMBER)] + [fenced(UP)] * 3
    model = ScriptedModel(answers)
    prompts = Prompts()
    search = Search(
        task=TASK,
        coder=Coder(FreeWriter(model, TASK, prompts), TASK, pool, repair_rounds=0),
        evaluator=Evaluator(model, TASK, prompts),
        sandbox=pool,
        store=RunStore(tmp_path / "run"),
        listener=Silent(),
        seed=0,
    )
    Eureka().run(search, Budget(generations=2, samples=3, env_steps=2048))
    asked = model.requests[1][0][-1].content
    assert "(2 times) unknown field 'angel'" in asked
    assert "(1 times)" in asked
    assert "bonus" in asked
    assert "Do not repeat" not in model.requests[0][0][-1].content


def test_every_random_answer_under_a_grammar_is_valid(pool: Pool) -> None:
    proposing = Coder(GrammarWriter(RandomModel(), TASK, Prompts()), TASK, pool)
    found = proposing.propose(0, 12, 5, Context())
    problems = [p for c in found for p in c.problems if p.kind is not Failure.DUPLICATE]
    assert problems == []
    assert sum(c.valid for c in found) >= 10
    again = Coder(GrammarWriter(RandomModel(), TASK, Prompts()), TASK, pool).propose(0, 12, 5, Context())
    assert [c.source for c in again] == [c.source for c in found]


def test_the_writer_suits_the_model() -> None:
    assert isinstance(make_writer(RandomModel(), TASK, Prompts()), GrammarWriter)
    assert isinstance(make_writer(ScriptedModel([]), TASK, Prompts()), FreeWriter)
