"""Numeric constants of a reward and their replacement in place; code in a model's answer."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.reward import RewardCode, extract_code, parse_reward
from synth.reward_text import GUARD
from synth.task import discover_tasks, load_task

PENDULUM = load_task("pendulum_swingup")
EXPERTS = [RewardCode.load(load_task(name).expert_path, load_task(name)) for name in discover_tasks()]
HEAD = "import torch\nimport torch.nn.functional as F\ndef compute_reward(angle, action):\n"


def code(expression: str) -> RewardCode:
    """A reward of the pendulum task that returns this expression."""
    parsed = parse_reward(f"{HEAD}    x = {expression}\n    return x, {{}}\n", PENDULUM)
    assert parsed.problems == ()
    assert parsed.code is not None
    return parsed.code


def value_of(reward: RewardCode, **inputs: torch.Tensor) -> torch.Tensor:
    namespace: dict = {}
    exec(reward.source, namespace)
    return namespace["compute_reward"](**inputs)[0]


CONSTANTS = {
    "scales and offsets": ("0.5 * angle + 1.5 - action[:, 0] / 4", [0.5, 1.5, 4]),
    "signs": ("-0.1 * angle - 0.2 * angle + -3 * angle", [-0.1, 0.2, -3]),
    "spaced sign": ("- 0.1 * angle", [-0.1]),
    "double sign": ("--0.1 * angle", [-0.1]),
    "sign of a product": ("-(0.1 * angle)", [0.1]),
    "indices": ("action[:, 0] + action[..., 0:1][:, 0]", []),
    "dimensions": ("torch.sum(action, dim=-1) + torch.sum(action, 1) + torch.norm(action, 2.0, -1)", []),
    "orders": ("torch.norm(action, p=2.0, dim=-1) + F.normalize(action, p=2.0)[:, 0]", []),
    "exponents": ("angle ** 2 + angle ** 0.5 + torch.pow(angle, 2.0) + angle.pow(3.0)", []),
    "base of a power": ("2.0 ** angle", [2.0]),
    "inside a norm": ("torch.norm(action - 0.3, dim=-1)", [0.3]),
    "bounds": ("torch.clamp(angle, -0.25, max=0.75)", [-0.25, 0.75]),
    "thresholds": ("torch.where(angle < 0.1, 1.0, 0.0) + (angle >= 1).float()", [0.1, 1.0, 1]),
    "zero": ("torch.clamp(angle, min=0.0) * 1.0 + 0", [1.0]),
    "guards": ("torch.sqrt(angle + 1e-8) / (angle + 1e-6)", []),
    "small weight": ("1e-4 * angle", [1e-4]),
    "shapes": ("angle.view(-1, 1).repeat(1, 2).reshape(-1, 2)[:, 0] + torch.zeros(3 * 2)", []),
    "booleans": ("True * angle", []),
    "target": ("torch.norm(torch.tensor([0.1, 0.2]) - action, dim=-1)", [0.1, 0.2]),
    "loop": ("sum([0.5 * angle for i in range(1, 3)])", [0.5]),
    "equality": ("(angle.ndim == 1) * angle", []),
    "huge and odd spellings": ("1_000.0 * angle + 1E3 * angle + .5 * angle + 5. * angle", [1000.0, 1000.0, 0.5, 5.0]),
    "umlauts before": ("{'größe': 1.0 * angle}['größe'] * 2.0", [1.0, 2.0]),
}


@pytest.mark.parametrize(("expression", "expected"), CONSTANTS.values(), ids=CONSTANTS)
def test_constants(expression, expected):
    reward = code(expression)
    found = reward.constants()
    assert [c.value for c in found] == expected
    for constant in found:
        line = reward.source.split("\n")[constant.line - 1]
        assert line[constant.column :].startswith(constant.text)
        assert float(constant.text.replace(" ", "").replace("_", "")) == constant.value


def test_constants_outside_the_body_of_the_entry():
    source = "WEIGHT = 0.5\ndef bend(x, power=2.0, flat=0.0):\n    return 3.0 * x\n"
    source += "def compute_reward(angle):\n    return WEIGHT * bend(angle, power=4.0), {}\n"
    assert [c.value for c in RewardCode.load(source, PENDULUM).constants()] == [0.5, 2.0, 3.0, 4.0]


def test_constants_of_a_whole_reward():
    code = RewardCode.load(PENDULUM.expert_path, PENDULUM)
    assert [c.value for c in code.constants()] == [-0.1, -0.004]


REPLACED = {
    "plain": ("0.5*angle", [0.7], "0.7*angle"),
    "same value keeps its spelling": ("5.*angle + 1E3", [5.0, 1000.0], "5.*angle + 1E3"),
    "integer stays one": ("2 * angle", [3.0], "3 * angle"),
    "integer becomes a float": ("2 * angle", [2.5], "2.5 * angle"),
    "large integer": ("2 * angle", [1e20], "1e+20 * angle"),
    "sign appears": ("0.5 * angle", [-0.5], "(-0.5) * angle"),
    "sign appears in a power": ("2.0 ** angle", [-2.0], "(-2.0) ** angle"),
    "sign stays": ("-0.5 * angle", [-0.7], "-0.7 * angle"),
    "sign goes": ("-0.5 * angle", [0.7], "0.7 * angle"),
    "sign goes after a minus": ("angle --0.5", [0.7], "angle -0.7"),
    "sign goes after a word": ("angle if action.ndim else-0.5 * angle", [0.7], "angle if action.ndim else 0.7 * angle"),
    "point goes after a word": ("angle if action.ndim else.5 * angle", [0.7], "angle if action.ndim else 0.7 * angle"),
    "spaced sign": ("- 0.5 * angle", [-0.7], "-0.7 * angle"),
    "several in a line": ("0.5*angle+1.5-2.5", [1.0, 1.5, 22.75], "1.0*angle+1.5-22.75"),
    "after umlauts": ("{'größe': 1.0}['größe'] * 2.0 * angle", [3.0, 4.0], "{'größe': 3.0}['größe'] * 4.0 * angle"),
    "comment kept": ("0.5 * angle  # 0.5 is enough", [0.25], "0.25 * angle  # 0.5 is enough"),
    "over lines": ("(0.5\n  * angle\n  - 1.5)", [2.0, 3.0], "(2.0\n  * angle\n  - 3.0)"),
}


@pytest.mark.parametrize(("before", "values", "after"), REPLACED.values(), ids=REPLACED)
def test_with_constants(before, values, after):
    changed = code(before).with_constants(values)
    assert changed.source == code(after).source
    assert changed.parameters == code(before).parameters
    assert [c.value for c in changed.constants()] == values


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n\x0c"])
def test_with_constants_counts_lines_as_python_does(end):
    source = (HEAD + "    x = 0.5 * angle\n    return 2.0 * x, {}\n").replace("\n", end)
    reward = RewardCode.load(source, PENDULUM)
    assert reward.with_constants([0.25, 4.0]).source == source.replace("0.5", "0.25").replace("2.0", "4.0")


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [math.nan], [math.inf], [-math.inf]])
def test_with_constants_refuses_other_lengths_and_values_that_are_not_finite(values):
    with pytest.raises(ValueError, match=r"values for 1 constants|must be finite"):
        code("0.5 * angle").with_constants(values)


@pytest.mark.parametrize("reward", EXPERTS, ids=discover_tasks())
def test_with_constants_is_the_identity_for_its_own_values(reward):
    values = [c.value for c in reward.constants()]
    assert values
    assert reward.with_constants(values) == reward


finite = st.floats(-1e6, 1e6).filter(lambda v: abs(v) >= GUARD)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(range(len(EXPERTS))), st.data())
def test_with_constants_there_and_back(which, data):
    reward, task = EXPERTS[which], load_task(discover_tasks()[which])
    before = reward.constants()
    values = data.draw(st.lists(finite, min_size=len(before), max_size=len(before)))
    changed = reward.with_constants(values)
    assert parse_reward(changed.source, task).code == changed
    assert [c.value for c in changed.constants()] == values
    back = changed.with_constants([c.value for c in before])
    assert back.normalised == reward.normalised


@settings(deadline=None, max_examples=100)
@given(st.lists(finite, min_size=5, max_size=5))
def test_with_constants_computes_with_the_new_values(values):
    """Against the same formula written with the values as parameters."""
    reward = code("-0.5 * torch.exp(1.5*angle) -2.0 + 3 * torch.clamp(action[:, 0], -0.25) ** 2")
    angle, action = torch.linspace(-1e-6, 1e-6, 5), torch.linspace(-1, 1, 5).unsqueeze(-1)
    a, b, c, d, e = values
    expected = a * torch.exp(b * angle) - c + d * torch.clamp(action[:, 0], e) ** 2
    torch.testing.assert_close(value_of(reward.with_constants(values), angle=angle, action=action), expected)


# --- code in answers

REWARD = "import torch\n\ndef compute_reward(angle):\n    return angle, {}\n"
HELPER = "def helper(x):\n    return x\n"
ANSWERS = {
    "fence": (f"Here it is:\n```python\n{REWARD}```\nDone.", REWARD),
    "fence without language": (f"```\n{REWARD}```", REWARD),
    "other language names": (f"```Python3\n{REWARD}```", REWARD),
    "tildes": (f"~~~python\n{REWARD}~~~\n", REWARD),
    "four backticks": (f"````python\n{REWARD}````\n", REWARD),
    "fence inside a fence of another kind": (f"~~~\n# ```\n{REWARD}~~~\n", "# ```\n" + REWARD),
    "the last of two": (f"```python\n{REWARD.replace('angle', 'x')}```\nBetter:\n```python\n{REWARD}```", REWARD),
    "helper after": (f"```python\n{REWARD}```\nand\n```python\n{HELPER}```", REWARD),
    "helper before": (f"```python\n{HELPER}```\nand\n```python\n{REWARD}```", REWARD),
    "output after": (f"```python\n{REWARD}```\n```text\n0.5\n```", REWARD),
    "wrong name": (f"```\n0.5\n```\n```python\n{HELPER}```\n```\n0.7\n```", HELPER),
    "unterminated": (f"Sure.\n```python\n{REWARD}", REWARD),
    "unterminated, then another": (f"```python\n{HELPER}\n```python\n{REWARD}```", REWARD),
    "windows": (f"Sure:\n```python\n{REWARD}```\n".replace("\n", "\r\n"), REWARD),
    "indented block": ("1. Code:\n   ```python\n   " + REWARD.replace("\n", "\n   ") + "```\n", REWARD),
    "spaces after the fence": (f"```python  \n{REWARD}```  \nDone.", REWARD),
    "bare": (REWARD, REWARD),
    "bare, indented": ("".join(f"    {line}\n" for line in REWARD.splitlines()), REWARD),
    "bare after prose": (f"Import torch and go from there:\n\n{REWARD}", REWARD),
    "bare before prose": (f"{REWARD}\nThis rewards the angle (and more).", REWARD),
    "bare between prose": (f"Sure.\n{REWARD}\n- angle: the angle\n", REWARD),
    "bare with a decorator": (f"Sure.\n@torch.jit.script\n{HELPER}", f"@torch.jit.script\n{HELPER}"),
    "bare with a constant": (f"{HELPER}\nSCALE = 2.0\n{HELPER}", f"{HELPER}\nSCALE = 2.0\n{HELPER}"),
    "bare beside a fence": (f"Run `synth`:\n```\nsynth run\n```\n{REWARD}", REWARD),
    "thoughts first": (f"<think>```python\n{HELPER}```</think>\n```python\n{REWARD}```", REWARD),
    "byte order mark": ("\ufeff" + REWARD, REWARD),
    "closing brackets": ("def f(\n    x,\n):\n    return x\n", "def f(\n    x,\n):\n    return x\n"),
    "fence without code": ("```python\nx = 1\n```", "x = 1\n"),
    "prose": ("I cannot define a reward from that.", None),
    "empty": ("", None),
    "empty fence": ("```python\n```", None),
    "only a fence": ("```python", None),
    "import alone": ("import torch\n", None),
}


@pytest.mark.parametrize(("answer", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_extract_code(answer, expected):
    assert extract_code(answer) == expected


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="`~ \n\rpython def compute_reward(x):=@#", max_size=200))
def test_extract_code_never_raises_and_returns_text_of_the_answer(answer):
    found = extract_code(answer)
    if found is not None:
        lines = {line.strip() for line in answer.replace("\r", "\n").split("\n")}
        assert found.strip()
        assert {line.strip() for line in found.split("\n")} <= lines | {""}


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=80).filter(lambda t: "`" not in t and "~" not in t), st.sampled_from(EXPERTS))
def test_extract_code_returns_a_fenced_reward_unchanged(prose, reward):
    assert extract_code(f"{prose}\n```python\n{reward.source}```\n{prose}") == reward.source
