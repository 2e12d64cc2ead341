"""Prompts: nothing that scores a policy is shown to a model, and a template's faults are one clear line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.base import Checkpoint, ComponentStats, Failure, MemberResult, RewardProblem
from synth.candidate import Candidate
from synth.environment_source import environment_source, strip_rewards
from synth.errors import SynthError
from synth.evaluator import Evaluator
from synth.evidence import gather_evidence
from synth.llm.base import Message
from synth.llm.random_model import RandomModel
from synth.llm.scripted import ScriptedModel
from synth.prompting import Prompts, number
from synth.task import Task, discover_tasks, load_task
from synth.writers import Answer, Context, Conversation, FreeWriter, GrammarWriter

PARENT_SOURCE = (
    "import torch\n\n\ndef compute_reward(action):\n    calm = -torch.sum(action * action, dim=-1)\n"
    "    return calm, {'calm': calm}\n"
)
PROBLEM = RewardProblem(Failure.SHAPE, "component 'calm' has the shape (64, 1); expected (64,)", 5)


def trained_parent() -> Candidate:
    stats = ComponentStats(-0.5, 0.1, -1.0, 0.0, 1.0)
    points = tuple(Checkpoint(100 * i, 0.1 * i, -0.5, 200.0, {"calm": stats}) for i in range(1, 5))
    member = MemberResult("g0-00", 0, 0.4, points, 400)
    answer = f"```python\n{PARENT_SOURCE}```"
    return Candidate("g0-00", 0, "new", answer, PARENT_SOURCE, members=(member,))


def contexts() -> Iterator[tuple[str, Context]]:
    parent = trained_parent()
    evidence = gather_evidence(parent.members)
    failures = ((PROBLEM, 3),)
    yield "empty", Context()
    yield "failures", Context(failures=failures)
    yield "parent", Context(parent, evidence, "It learnt to be calm.", {"calm": "rescale"})
    yield "parent and failures", Context(parent, evidence, "", {"calm": "drop"}, failures)


def all_prompts(task: Task) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Every message that can reach a model for this task."""
    prompts = Prompts()
    for kind, context in contexts():
        for writer in (FreeWriter(ScriptedModel([]), task, prompts), GrammarWriter(RandomModel(), task, prompts)):
            yield f"{type(writer).__name__} {kind}", writer.conversation(context).messages
    model = ScriptedModel([PARENT_SOURCE])
    talk: Conversation = FreeWriter(model, task, prompts).conversation(Context())
    broken = Answer("x", "x", "new", talk.messages)
    FreeWriter(model, task, prompts).repair([(broken, (PROBLEM,))], 0)
    yield "repair", model.requests[0][0]
    parent = trained_parent()
    for small in (True, False):
        seen = _Small() if small else ScriptedModel(["{}"])
        Evaluator(seen, task, prompts).reflect(parent, gather_evidence(parent.members), 0)
        yield f"evaluator small={small}", seen.requests[0][0]


class _Small(ScriptedModel):
    """A scripted model that takes a grammar, so that it gets the short prompts."""

    supports_grammar = True

    def __init__(self) -> None:
        super().__init__(['{"components": {"calm": "keep"}}'])


def squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text)


def secret_lines(path: Path) -> set[str]:
    """A file's telling lines: of statements, without imports, signatures and comments; as written and normalised."""
    source = path.read_text(encoding="utf-8")
    lines = {*source.splitlines(), *ast.unparse(ast.parse(source)).splitlines()}
    plain = {line.strip() for line in lines}
    signature = r"import |from |def |class |#|\"\"\"|\) ->|(\w+: Tensor,? ?)+$"
    code = {line for line in plain if not re.match(signature, line)}
    own = squeeze(PARENT_SOURCE)
    return {squeeze(line) for line in code if len(squeeze(line)) >= 12 and squeeze(line) not in own}


@pytest.mark.parametrize("name", discover_tasks())
def test_no_prompt_shows_how_the_task_is_scored(name: str) -> None:
    task = load_task(name)
    secrets = secret_lines(task.metric_path) | secret_lines(task.expert_path)
    assert len(secrets) > 2
    kinds = set()
    for kind, messages in all_prompts(task):
        kinds.add(kind)
        text = "\n".join(m.content for m in messages)
        squeezed = squeeze(text)
        assert not [line for line in secrets if line in squeezed], f"{kind} shows a line of the metric or the expert"
        assert "compute_metric" not in text, kind
        assert "sparse_reward" not in text, kind
        assert task.description in text, kind
    assert len(kinds) == 11


@pytest.mark.parametrize("name", discover_tasks())
def test_environment_source_is_shown_and_runs(name: str) -> None:
    task = load_task(name)
    source = environment_source(task)
    tree = ast.parse(source)
    methods = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assert {"advance", "fields", "observation"} <= methods
    text = FreeWriter(ScriptedModel([]), task, Prompts()).conversation(Context()).messages[1].content
    assert source in text
    for field in task.fields:
        assert f"- {field.name}: " in text
        assert field.meaning in text


def test_unknown_simulators_have_no_source() -> None:
    task = load_task("pendulum_swingup")
    assert environment_source(Task("x", task.folder, "", "no_such_simulator", task.fields, 0.5)) == ""


GYM = '''
"""A reacher. The reward is minus the distance."""
import math
from scoring import reward_of, metric

REWARD_SCALE = 2.0  # secret_in_comment
LIMIT = 3.0

class RewardShaper:
    gain = 71717

class Env:
    """Success when the distance is below 0.31337."""
    success_radius = 0.31337
    limits: list = [1, 2]

    def __init__(self, reward_weights=(0.11111,)):
        self.x = 0.0

    def compute_reward(self, x):
        return -abs(x) * 22222.0

    def _is_success(self, x): return x < 33333.0

    async def score_async(self): return 14141

    def step(self, action):
        """Applies the action.

        Returns observation, reward 44444."""
        self.x += action
        reward = -abs(self.x) * 55555.0
        if self.x > 1.0:
            self.x = 1.0
            reward -= 66666.0
        elif self.last_reward > 77777.0:
            self.x = 0.0
        else:
            metric = 12121.0
        try:
            self.v = 1.0
        except ValueError:
            reward = 88888.0
        finally:
            score = 15151.0
        for _ in range(2):
            total_reward = 99999.0
        with open("x") as f:
            self.info["success"] = self.x < 16161.0
        while self.x < 3.0:
            self.fitness = 17171
        match action:
            case 1:
                reward = 18181
        f = lambda reward: reward * 19191
        g = dict(reward=20202)
        print(f"reward {21212}")
        return self.obs(), reward, {"n": 23232}

    def observe(self):
        if self.x > LIMIT:
            return [self.x, 1.0]
        return [self.x]
'''


def test_everything_that_computes_a_reward_is_stripped() -> None:
    shown = strip_rewards(GYM)
    assert not re.search(r"reward|metric|score|success|fitness|secret", shown, re.IGNORECASE)
    secrets = set(re.findall(r"\d{5}", GYM))
    assert len(secrets) > 18
    assert not [s for s in secrets if s in shown]
    for kept in ("LIMIT = 3.0", "limits: list = [1, 2]", "self.x += action", "self.v = 1.0", "def observe(self):"):
        assert kept in shown, kept
    compile(shown, "<shown>", "exec")


@pytest.mark.parametrize("source", ["def f(:", "a\0b"])
def test_source_that_cannot_be_read_is_not_shown(source: str) -> None:
    assert strip_rewards(source) == ""


def test_the_users_templates_come_first(tmp_path: Path) -> None:
    (tmp_path / "coder").mkdir()
    (tmp_path / "coder" / "system.j2").write_text("Be {{ 1 + 1 }} times as careful.")
    prompts = Prompts(tmp_path)
    assert prompts.render("coder/system").text == "Be 2 times as careful.\n"
    assert prompts.render("coder/system").digest != Prompts().render("coder/system").digest
    values = {"problems": [PROBLEM]}
    assert prompts.render("coder/repair", **values) == Prompts().render("coder/repair", **values)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("ok\n{{ nothing_like_it }}", "nothing_like_it"),
        ("ok\n{% for %}", "line 2"),
        ("{{ 'a' | number }}", "system.j2"),
        ("{% include 'coder/absent.j2' %}", "coder/absent.j2"),
        ("{{ 1 / 0 }}", "division by zero"),
        (b"\xff\xfe", "system.j2"),
    ],
)
def test_a_wrong_template_is_named(tmp_path: Path, template: str | bytes, words: str) -> None:
    (tmp_path / "coder").mkdir()
    (tmp_path / "coder" / "system.j2").write_bytes(template if isinstance(template, bytes) else template.encode())
    with pytest.raises(SynthError, match="the prompt template") as caught:
        Prompts(tmp_path).render("coder/system")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_values_templates_and_folders(tmp_path: Path) -> None:
    with pytest.raises(SynthError, match=r"coder/repair\.j2.*problems"):
        Prompts().render("coder/repair")
    with pytest.raises(SynthError, match=r"coder/none\.j2 is missing"):
        Prompts().render("coder/none")
    with pytest.raises(SynthError, match=r"prompt folder .*absent does not exist"):
        Prompts(tmp_path / "absent")


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.123456, "0.123"), (-12.5, "-12.5"), (1234.0, "1.23e+03"), (3e6, "3.00e+06")]
)
def test_numbers_as_people_read_them(value: float, text: str) -> None:
    assert number(value) == text
