"""Rewards as source: loading, components, the normal form and its digest."""

import re

import pytest
import torch

from synth.errors import RewardError
from synth.reward import RewardCode, describe_signature, parse_reward
from synth.task import discover_tasks, load_task

PENDULUM = load_task("pendulum_swingup")
EXPERTS = {name: RewardCode.load(load_task(name).expert_path, load_task(name)) for name in discover_tasks()}


def code(*lines: str, head: str = "import math\nimport torch\nimport torch.nn.functional as F\n") -> RewardCode:
    """A reward of the pendulum task with this body."""
    source = head + "def compute_reward(angle, angular_velocity, action):\n" + "".join(f"    {x}\n" for x in lines)
    parsed = parse_reward(source, PENDULUM)
    assert parsed.problems == ()
    assert parsed.code is not None
    return parsed.code


def run(reward: RewardCode, **given: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Execute a reward; parameters that are not given are random."""
    generator = torch.Generator().manual_seed(7)
    inputs = {p.name: torch.rand(6, *p.field.shape, generator=generator) for p in reward.parameters}
    namespace: dict = {}
    exec(reward.source, namespace)
    return namespace["compute_reward"](**{**inputs, **given})


# --- loading


def test_load_takes_a_path_a_string_path_or_text():
    path = PENDULUM.expert_path
    text = path.read_text(encoding="utf-8")
    assert RewardCode.load(path, PENDULUM) == RewardCode.load(str(path), PENDULUM) == RewardCode.load(text, PENDULUM)
    one_line = "def compute_reward(angle): return angle, {}"
    assert RewardCode.load(one_line, PENDULUM).source == one_line


def test_load_accepts_a_byte_order_mark(tmp_path):
    path = tmp_path / "reward.py"
    path.write_bytes(b"\xef\xbb\xbfdef compute_reward(angle):\n    return angle, {}\n")
    assert RewardCode.load(path, PENDULUM).parameters[0].name == "angle"


def test_parameters_are_resolved():
    reward = RewardCode.load("def compute_reward(prev_angle, initial_action, time):\n    return time, {}\n", PENDULUM)
    assert [(p.name, p.source, p.field.name) for p in reward.parameters] == [
        ("prev_angle", "prev", "angle"),
        ("initial_action", "initial", "action"),
        ("time", "time", "time"),
    ]


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (
            b"import os\ndef compute_reward(angle):\n    x = open('f')\n",
            r"reward\.py:1: `import os`.* \(and 2 more problems\)$",
        ),
        (b"\xff\xfe", r"reward\.py cannot be read: not valid UTF-8 text$"),
        (b"", r"reward\.py: there is no code"),
    ],
)
def test_load_names_the_file_and_the_problem_in_one_line(tmp_path, content, pattern):
    path = tmp_path / "reward.py"
    path.write_bytes(content)
    with pytest.raises(RewardError) as caught:
        RewardCode.load(path, PENDULUM)
    assert re.search(pattern, str(caught.value))
    assert "\n" not in str(caught.value)


def test_load_of_a_missing_file_a_folder_and_an_impossible_name(tmp_path):
    for name in (tmp_path / "none.py", tmp_path, "a" * 10_000, "a\0b"):
        with pytest.raises(RewardError, match="cannot be read"):
            RewardCode.load(name, PENDULUM)


def test_load_of_bad_text():
    with pytest.raises(RewardError, match="reward:2: `eval"):
        RewardCode.load("def compute_reward(angle):\n    return eval('1'), {}\n", PENDULUM)


# --- components

COMPONENTS = {
    "dict literal": (["return angle, {'a': angle, 'b': 2.0 * angle}"], {"a": "angle", "b": "2.0 * angle"}),
    "named dict": (["x = angle * 2", "parts = {'x': x}", "return x, parts"], {"x": "angle * 2"}),
    "subscripts": (
        ["c = {}", "c['a'] = angle + 1", "c['b'] = -angle", "return angle, c"],
        {"a": "angle + 1", "b": "-angle"},
    ),
    "dict call": (["return angle, dict(a=angle, b=-angle)"], {"a": "angle", "b": "-angle"}),
    "update": (
        ["c = {'a': angle}", "c.update({'b': -angle}, d=+angle)", "return angle, c"],
        {"a": "angle", "b": "-angle", "d": "+angle"},
    ),
    "annotated": (["x: float = angle * 3", "c: dict = {'x': x}", "return x, c"], {"x": "angle * 3"}),
    "lines": (["x = (", "    angle", "    + 1)", "return x, {'x': x}"], {"x": "angle\n        + 1"}),
    "two assignments": (["x = angle", "x = x * 2", "return x, {'x': x}"], {"x": None}),
    "augmented": (["x = angle * 1", "x += 2", "return x, {'x': x}"], {"x": None}),
    "two returns": (
        ["if action.ndim == 1:", "    return angle, {'a': angle}", "return angle, {'b': angle}"],
        {"a": "angle", "b": "angle"},
    ),
    "umlaut": (["x = {'größe': angle}", "return angle, x"], {"größe": "angle"}),
    "none": (["return angle, {}"], {}),
    "computed names": (["c = {f'j{i}': angle for i in range(2)}".replace("f'j{i}'", "'j'"), "return angle, c"], {}),
    "computed key": (["c = {}", "for i in range(2):", "    c[f'j{i}'] = angle", "return angle, c"], {}),
    "helper": (["return other(angle)"], {}),
}


@pytest.mark.parametrize(("lines", "expected"), COMPONENTS.values(), ids=COMPONENTS)
def test_components(lines, expected):
    head = "def other(x):\n    return x, {'a': x}\n" if "other" in lines[-1] else ""
    reward = code(*lines, head=head)
    assert reward.component_names == tuple(expected)
    assert reward.component_sources() == {k: v for k, v in expected.items() if v is not None}


@pytest.mark.parametrize("name", EXPERTS)
def test_component_sources_of_the_experts_compute_the_components(name):
    """Each source, evaluated among the locals of the real call, is the component itself."""
    reward = EXPERTS[name]
    expressions = reward.component_sources()
    assert tuple(expressions) == reward.component_names
    # The same function, returning its locals: an independent way to get at the values.
    watched = re.sub(r"\n    return [^\n]*, (?:parts|\{[^\n]*)\n", "\n    return locals()\n", reward.source)
    namespace: dict = {}
    exec(watched, namespace)
    generator = torch.Generator().manual_seed(7)
    inputs = {p.name: torch.rand(6, *p.field.shape, generator=generator) for p in reward.parameters}
    values = namespace["compute_reward"](**inputs)
    _, components = run(reward)
    for component, expression in expressions.items():
        torch.testing.assert_close(eval(expression, namespace, values), components[component])


# --- the normal form

PLAIN = """
import torch
from torch import Tensor

WEIGHT = 0.5


def bend(x: Tensor, power: float = 2.0) -> Tensor:
    return torch.abs(x) ** power


def compute_reward(angle: Tensor, action: Tensor):
    near = torch.exp(-bend(angle, power=3.0))
    effort = WEIGHT * torch.sum(action, dim=-1)
    for i in range(2):
        near = near * 0.9
    return near - effort, {"near": near, "effort": -effort}
"""
SAME = {
    "comments and blank lines": PLAIN.replace("    for i", "\n    # shrink\n\n    for i"),
    "docstrings": PLAIN.replace("    near = torch.exp", '    """Stay near."""\n    near = torch.exp'),
    "module docstring": '"""A reward."""\n' + PLAIN,
    "annotations": PLAIN.replace(": Tensor", "")
    .replace(" -> Tensor", "")
    .replace("near = torch.exp", "near: float = torch.exp"),
    "locals": PLAIN.replace("near =", "n =").replace("near -", "n -").replace("near *", "n *").replace(": near", ": n"),
    "loop variable": PLAIN.replace("for i in", "for step in"),
    "helper name": PLAIN.replace("bend", "curve"),
    "helper parameters": PLAIN.replace("power", "exponent")
    .replace("x", "y")
    .replace("eyp", "exp")
    .replace("eyponent", "exponent"),
    "module constant": PLAIN.replace("WEIGHT", "W"),
    "torch alias": PLAIN.replace("import torch\n", "import torch as t\n").replace("torch.", "t."),
    "imported function": PLAIN.replace("import Tensor", "import Tensor, exp").replace("torch.exp", "exp"),
    "parentheses": PLAIN.replace("WEIGHT * torch.sum(action, dim=-1)", "(WEIGHT * (torch.sum(action, dim=(-1))))"),
    "quotes": PLAIN.replace('"near"', "'near'"),
    "number spelling": PLAIN.replace("0.9", "9e-1"),
    "decorator": PLAIN.replace("def compute", "@torch.jit.script\ndef compute"),
    "order of imports": PLAIN.replace(
        "import torch\nfrom torch import Tensor", "from torch import Tensor\nimport math\nimport torch"
    ),
}
DIFFERENT = {
    "constant": PLAIN.replace("0.9", "0.8"),
    "sign": PLAIN.replace("-effort}", "effort}"),
    "component name": PLAIN.replace('"near"', '"close"'),
    "default value": PLAIN.replace("power: float = 2.0", "power: float = 2.5"),
    "module constant": PLAIN.replace("WEIGHT = 0.5", "WEIGHT = 0.6"),
    "field": PLAIN.replace("angle", "prev_angle"),
    "function": PLAIN.replace("torch.exp", "torch.sin"),
    "exchanged locals": PLAIN.replace("near - effort", "effort - near"),
    "one more statement": PLAIN.replace("    for i", "    near = near + 0.1\n    for i"),
    "keyword": PLAIN.replace("dim=-1", "dim=1"),
}


def _text(source: str) -> RewardCode:
    return RewardCode.load(source, PENDULUM)


@pytest.mark.parametrize("source", SAME.values(), ids=SAME)
def test_normal_form_is_equal(source):
    assert source != PLAIN
    assert _text(source).normalised == _text(PLAIN).normalised
    assert _text(source).digest == _text(PLAIN).digest


@pytest.mark.parametrize("source", DIFFERENT.values(), ids=DIFFERENT)
def test_normal_form_is_different(source):
    assert _text(source).normalised != _text(PLAIN).normalised
    assert _text(source).digest != _text(PLAIN).digest


@pytest.mark.parametrize("reward", [*EXPERTS.values(), _text(PLAIN)], ids=[*EXPERTS, "plain"])
def test_normal_form_computes_the_same(reward):
    normal = RewardCode("import math\nimport torch\n" + reward.normalised, reward.parameters)
    expected, parts = run(reward)
    found, found_parts = run(normal)
    assert torch.equal(found, expected)
    assert list(found_parts) == list(parts)
    assert re.fullmatch("[0-9a-f]{12}", reward.digest)


def test_describe_signature_is_a_signature_that_the_gate_accepts():
    for name in discover_tasks():
        task = load_task(name)
        signature = describe_signature(task)
        head = "from typing import Dict, Tuple\nfrom torch import Tensor\n"
        parsed = parse_reward(f"{head}{signature}\n    return action[:, 0], {{}}\n", task)
        assert parsed.code is not None
        assert tuple(p.name for p in parsed.code.parameters) == task.field_names()
    assert describe_signature(PENDULUM) == (
        "def compute_reward(angle: Tensor, angular_velocity: Tensor, action: Tensor)"
        " -> Tuple[Tensor, Dict[str, Tensor]]:"
    )
