"""The grammar's promise: whatever a model says under it is a valid reward, and its terms can be moved on."""

from __future__ import annotations

import ast
import random
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from synth.features import task_features
from synth.gbnf import Alt, GrammarError, Node, Repeat, Rule, Seq, Text, alt, parse, render, sample, seq, thin
from synth.grammar import TermPlan, build_frame, component_lines, more_terms, movable_lines, whole_plan
from synth.reward import parse_reward
from synth.task import PREFIXES, Task, discover_tasks, load_task

TASKS = {name: load_task(name) for name in discover_tasks()}
NUMBER = re.compile(r"(?<![\w.\[])\d+(\.\d+)?(e-?\d+)?(?![\w.\]])")


def random_fields(task: Task, seed: int, batch: int = 7) -> dict[str, Tensor]:
    """Every name a reward of the task may read, as tensors."""
    generator = torch.Generator().manual_seed(seed)
    values = {"time": torch.rand(batch, generator=generator)}
    for item in task.fields:
        for prefix in ("", *PREFIXES):
            drawn = torch.randn((batch, *item.shape), generator=generator)
            values[prefix + item.name] = drawn > 0 if item.dtype == "bool" else drawn
    return values


def execute(source: str, task: Task, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """The reward called on random fields, as a worker would."""
    parsed = parse_reward(source, task)
    assert parsed.code is not None, f"{[p.message for p in parsed.problems]}\n{source}"
    space: dict[str, Any] = {}
    exec(compile(source, "<reward>", "exec"), space)
    fields = random_fields(task, seed)
    result: tuple[Tensor, dict[str, Tensor]] = space["compute_reward"](
        **{p.name: fields[p.name] for p in parsed.code.parameters}
    )
    return result


def plan_of(task: Task, rng: random.Random) -> TermPlan:
    """A plan as the search draws them: from nothing, or with kept and retuned terms of an earlier reward."""
    if rng.random() < 0.4:
        return whole_plan(task, rng)
    parent = build_frame(task, whole_plan(task, rng))
    lines = list(movable_lines(parent.finish(parent.random_answer(rng)), task).values())
    rng.shuffle(lines)
    cut = rng.randint(0, len(lines))
    return more_terms(task, TermPlan(tuple(lines[:cut]), tuple(lines[cut:])), rng.randint(0, 2), rng)


@pytest.mark.parametrize("name", TASKS)
@given(seed=st.integers(0, 2**32), share=st.sampled_from([None, 0.1, 0.5, 1.0]))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_every_answer_is_a_valid_reward_with_movable_terms(name: str, seed: int, share: float | None) -> None:
    task, rng = TASKS[name], random.Random(seed)
    frame = build_frame(task, plan_of(task, rng))
    if share is not None:
        frame = frame.thinned(rng, share)
    answer = frame.random_answer(rng)
    source = frame.finish(answer)
    reward, components = execute(source, task, seed)

    assert reward.shape == (7,)
    assert reward.dtype == torch.float32
    assert all(value.shape == (7,) and value.dtype == torch.float32 for value in components.values())
    torch.testing.assert_close(reward, torch.stack(list(components.values())).sum(dim=0), rtol=1e-4, atol=1e-4)
    lines = [line.strip() for line in (frame.prefix + answer).splitlines() if " = " in line]
    written = [ast.unparse(ast.parse(line)).split(" = ")[1] for line in lines]
    moved = movable_lines(source, task)
    assert list(moved) == list(components)
    assert {line.split(" = ")[1] for line in moved.values()} == {*written}


@pytest.mark.parametrize("name", TASKS)
def test_moved_terms_say_the_same_in_another_reward(name: str) -> None:
    task = TASKS[name]
    for seed in range(10):
        rng = random.Random(seed)
        frame = build_frame(task, whole_plan(task, rng))
        source = frame.finish(frame.random_answer(rng))
        kept = build_frame(task, TermPlan(kept=tuple(movable_lines(source, task).values())))
        again = kept.finish(kept.random_answer(rng))
        first, second = execute(source, task, seed), execute(again, task, seed)
        assert list(first[1]) == list(second[1])
        for component in first[1]:
            torch.testing.assert_close(first[1][component], second[1][component], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("name", TASKS)
def test_kept_terms_stand_and_retuned_ones_differ_in_numbers_only(name: str) -> None:
    task, changed = TASKS[name], 0
    for seed in range(20):
        rng = random.Random(seed)
        parent = build_frame(task, whole_plan(task, rng))
        lines = list(movable_lines(parent.finish(parent.random_answer(rng)), task).values())
        kept, retuned = tuple(lines[::2]), tuple(lines[1::2])
        frame = build_frame(task, more_terms(task, TermPlan(kept, retuned), 1, rng)).thinned(rng, 0.5)
        found = list(movable_lines(frame.finish(frame.random_answer(rng)), task).values())
        assert found[: len(kept)] == list(kept)
        for line in retuned:
            same_form = [f for f in found if NUMBER.sub("#", f) == NUMBER.sub("#", line)]
            assert same_form, f"{line} has no successor in {found}"
            changed += line not in same_form
    assert changed > 0


def test_an_answer_that_is_cut_off_keeps_its_whole_lines() -> None:
    task = TASKS["pendulum_swingup"]
    frame = build_frame(task, TermPlan(goals=(("cos_angle",),), costs=(("effort",),)))
    whole = "    cos_angle_bonus = 1.0 * cos_angle\n    effort_penalty = -0.05 * effort\n"
    for end, names in (
        (len(whole), 2),
        (len(whole) - 1, 1),
        (whole.index("-0.05"), 1),
        (whole.index("* cos_"), 0),
        (whole.index("ffort"), 1),
    ):
        _, components = execute(frame.finish(whole[:end]), task)
        assert len([n for n in components if n != "nothing"]) == names, whole[:end]


def test_no_cut_of_any_answer_makes_an_invalid_reward() -> None:
    task, rng = TASKS["reacher"], random.Random(5)
    frame = build_frame(task, whole_plan(task, rng))
    answer = frame.random_answer(rng)
    for end in range(len(answer)):
        execute(frame.finish(answer[:end]), task)


def test_two_terms_of_one_name_are_two_terms_unless_they_say_the_same() -> None:
    task = TASKS["pendulum_swingup"]
    frame = build_frame(task, TermPlan(kept=("cos_angle_bonus = 1.0 * cos_angle",)))
    other = frame.finish("    cos_angle_bonus = 2.0 * cos_angle\n    cos_angle_bonus = 1.0 * cos_angle\n    reward =")
    assert list(component_lines(other)) == ["cos_angle_bonus", "cos_angle_bonus_2"]
    reward, components = execute(other, task)
    torch.testing.assert_close(reward, 3.0 * components["cos_angle_bonus"])


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def compute_reward(",
        "def compute_reward(angle):\n    return angle, {'a': angle + 1.0}",
        "def helper(x):\n    return x\ndef compute_reward(angle):\n    a = helper(angle)\n    return a, {'a': a}",
        "def compute_reward(angle):\n    return angle",
    ],
)
def test_rewards_of_another_form_have_no_terms_to_move(source: str) -> None:
    assert component_lines(source) == {}


def test_a_term_over_a_local_value_stays_where_it_is() -> None:
    source = (
        "def compute_reward(angle):\n    bent = angle * 2.0\n    a = 1.0 * bent\n    b = 1.0 * angle\n"
        "    reward = a + b\n    return reward, {'a': a, 'b': b}\n"
    )
    assert movable_lines(source, TASKS["pendulum_swingup"]) == {"b": "b = 1.0 * angle"}


def pattern(node: Node) -> str:
    """The same language as a regular expression: another reader of the grammar."""
    if isinstance(node, Text):
        return re.escape(node.text)
    if isinstance(node, Seq):
        return "".join(pattern(part) for part in node.parts)
    if isinstance(node, Alt):
        return f"(?:{'|'.join(pattern(option) for option in node.options)})"
    if isinstance(node, Repeat):
        return f"(?:{pattern(node.part)}){{{node.least},{node.most}}}"
    return pattern(node.body)


@pytest.mark.parametrize("name", TASKS)
def test_written_grammar_reads_back_the_same(name: str) -> None:
    task = TASKS[name]
    for seed in range(5):
        rng = random.Random(seed)
        plan = plan_of(task, rng)
        frame = build_frame(task, more_terms(task, plan, 1, rng) if plan.kept else plan)
        back = parse(frame.grammar)
        texts = {sample(frame.root, random.Random(s)) for s in range(5)}
        others = {sample(back, random.Random(s)) for s in range(5)}
        assert len(texts) > 1
        assert all(re.fullmatch(pattern(back), text) for text in texts)
        assert all(re.fullmatch(pattern(frame.root), text) for text in others)


@given(st.text(alphabet='ab"\\\n |(){}', min_size=1, max_size=12), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_text_survives_writing_and_reading(text: str, least: int, more: int) -> None:
    root = seq(Rule("part", alt([text, seq("x", text)])), Repeat(Text(text), least, least + more))
    back = parse(render(root))
    for seed in range(3):
        assert re.fullmatch(pattern(root), sample(back, random.Random(seed)))
        assert re.fullmatch(pattern(back), sample(root, random.Random(seed)))


@pytest.mark.parametrize("text", ["", 'start ::= "a"', "root ::= other", 'root ::= ("a"', 'root ::= "a")', "a b"])
def test_text_that_is_no_grammar_is_refused(text: str) -> None:
    with pytest.raises(GrammarError):
        parse(text)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 0.7]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_thinning_takes_choices_away_and_adds_none(seed: int, share: float) -> None:
    words = [f"w{i}" for i in range(10)]
    root = Repeat(alt(words), 1, 3)
    thinned = thin(root, random.Random(seed), share)
    said = {sample(thinned, random.Random(s)) for s in range(30)}
    assert len({len(text) for text in said}) == 1  # the number of repetitions is drawn once
    assert {text[i : i + 2] for text in said for i in range(0, len(text), 2)} <= set(words)
    first_words = {text[:2] for text in said}
    assert 1 < len(first_words) <= max(2, round(share * 10))


@pytest.mark.parametrize(
    "line", ["a = 5e-05 * angle", "a = 0.00005 * angle", "a = 1.6e-05 * angle", "a = 0.000001 * angle"]
)
def test_small_numbers_can_be_retuned_for_ever(line: str) -> None:
    task, said = TASKS["pendulum_swingup"], set()
    for seed in range(30):
        frame = build_frame(task, TermPlan(retuned=(line,)))
        source = frame.finish(frame.random_answer(random.Random(seed)))
        factor = float(component_lines(source)["a"].removeprefix("a = ").removesuffix(" * angle"))
        assert 0.0 < factor < 1e-3
        said.add(factor)
    assert len(said) > 3


@pytest.mark.parametrize("name", TASKS)
def test_first_goal_is_about_the_target_where_there_is_one(name: str) -> None:
    task = TASKS[name]
    errors = {f.name for f in task_features(task) if f.is_error}
    for seed in range(20):
        plan = whole_plan(task, random.Random(seed))
        assert plan.fresh
        assert plan.goals
        if errors:
            assert set(plan.goals[0]) == errors
