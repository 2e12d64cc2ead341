"""The static gate: what it accepts, and what it refuses in which words."""

import inspect
import linecache
import math
import textwrap

import pytest
import torch

from sandboxes.base import Failure
from synth import reward_names
from synth.reward import MAX_PROBLEMS, parse_reward
from synth.task import discover_tasks, load_task

PENDULUM = load_task("pendulum_swingup")
REACHER = load_task("reacher")
HEAD = """import math
import torch
import torch.nn.functional as F
from torch import Tensor
from typing import Dict, Tuple
"""


def body(*lines: str) -> str:
    """A reward of the pendulum task around these statements."""
    inner = textwrap.indent("\n".join(lines), "    ")
    return f"{HEAD}def compute_reward(angle: Tensor, action: Tensor):\n{inner}\n    return angle, {{'angle': angle}}\n"


def problems(source, task=PENDULUM):
    return parse_reward(source, task).problems


@pytest.mark.parametrize("name", discover_tasks())
def test_the_experts_pass(name):
    task = load_task(name)
    parsed = parse_reward(task.expert_path.read_text(encoding="utf-8"), task)
    assert parsed.problems == ()
    assert parsed.code is not None
    given = {p.name: torch.rand(5, *p.field.shape) for p in parsed.code.parameters}
    reward, components = run(parsed.code.source, given)
    assert tuple(components) == parsed.code.component_names
    torch.testing.assert_close(reward, sum(components.values()))


def run(source, given):
    """Execute a reward as the worker does; TorchScript looks the source up by file name."""
    linecache.cache["<reward>"] = (len(source), None, source.splitlines(keepends=True), "<reward>")
    namespace = {"__name__": "reward"}
    exec(compile(source, "<reward>", "exec"), namespace)
    return namespace["compute_reward"](**given)


EUREKA = '''
import torch
import math
from typing import Tuple, Dict
from torch import Tensor

@torch.jit.script
def compute_reward(
    fingertip_pos: torch.Tensor, goal_pos: torch.Tensor, joint_velocities: torch.Tensor
) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
    """Reach the goal."""
    distance_temp: float = 10.0
    distance: torch.Tensor = torch.norm(fingertip_pos - goal_pos, p=2, dim=-1)
    nearest = torch.min(torch.stack([distance, 2.0 * distance], dim=0), dim=0).values
    penalty = torch.zeros_like(distance)
    penalty[distance > 0.2] -= 0.5
    penalty += -0.01 * torch.sum(joint_velocities ** 2, dim=-1)
    approach = torch.exp(-distance_temp * nearest)
    total_reward = approach + penalty
    reward_components: Dict[str, torch.Tensor] = {
        "approach": approach,
        "penalty": penalty,
    }
    return total_reward, reward_components
'''

ACCEPTED = {
    "helper functions": "import torch\ndef square(x: torch.Tensor, power: float = 2.0):\n    return x ** power\n"
    "def compute_reward(angle):\n    return square(angle, power=2.0), {}\n",
    "module constants": "import math\nWEIGHT = -0.5 * math.pi\nNAMES = ('a', 'b')\nLIMIT: float = 1.0\n"
    "def compute_reward(angle):\n    return WEIGHT * angle, {NAMES[0]: LIMIT * angle}\n",
    "future import": "from __future__ import annotations\ndef compute_reward(angle: float):\n    return angle, {}\n",
    "docstring first": '"""A reward."""\ndef compute_reward(angle):\n    """Text."""\n    return angle, {}\n',
    "modern types": "from torch import Tensor\n"
    "def compute_reward(angle: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:\n"
    "    return angle, {}\n",
    "string types": "from torch import Tensor\n"
    "def compute_reward(angle: 'Tensor') -> 'tuple[Tensor, dict[str, Tensor]]':\n"
    "    return angle, {}\n",
    "previous, initial and time": "def compute_reward(prev_angle, initial_angle, time):\n    return prev_angle, {}\n",
    "aliases": "import torch as t\nfrom torch.nn import functional as fn\nfrom math import pi as PI\n"
    "def compute_reward(angle):\n    return t.exp(fn.relu(angle)) / PI, {}\n",
    "imported functions": "from torch import exp, where\ndef compute_reward(angle):\n    return exp(angle), {}\n",
    "if on shapes": body("if action.shape[-1] > 1 and action.dim() == 2:", "    x = 1", "else:", "    x = 2"),
    "loop over the action": body(
        "total = torch.zeros_like(angle)", "for i in range(action.shape[1]):", "    total += action[:, i]"
    ),
    "loop over a dict": body(
        "parts = {}",
        "parts['a'] = angle",
        "total = 0.0 * angle",
        "for name, value in parts.items():",
        "    total = total + value",
    ),
    "loop over literals": body("for i, (w, x) in enumerate(zip([0.1, 0.2], (angle, action[:, 0]))):", "    y = w * x"),
    "named list": body("terms = [angle, angle]", "total = sum([t for t in terms])"),
    "list parameter": "from typing import List\nfrom torch import Tensor\ndef add(terms: List[Tensor]):\n    y = 0.0\n"
    "    for t in terms:\n        y = y + t\n    return y\ndef compute_reward(angle):\n    return add([angle]), {}\n",
    "walrus": body("y = (z := torch.abs(angle)) + z"),
    "conditional expression": body("scale = 1.0 if angle.ndim == 1 else 0.5"),
    "in place on a new tensor": body(
        "x = torch.zeros_like(angle)",
        "x[angle > 0] = 1.0",
        "x *= 2",
        "y = angle.clone()",
        "y[0] = 0",
        "z = angle * 2",
        "z += 1",
    ),
    "annotate": body(
        "parts = torch.jit.annotate(Dict[str, Tensor], {})", "parts['x'] = angle", "parts.update({'y': angle})"
    ),
    "f-string with a name": body("parts = {}", "for i in range(2):", "    parts[f'joint_{i}'] = angle * i"),
    "methods": body("x = angle.abs().clamp(max=1.0).float().unsqueeze(-1).squeeze(-1).pow(2).to(angle.dtype)"),
    "logic": body("near = (angle.abs() < 0.1) & ~(action[:, 0] > 0.5) | torch.isnan(angle)", "x = near.float()"),
    "torch constants": body("x = torch.pi * torch.tensor([1.0], device=angle.device, dtype=torch.float32)"),
    "linalg": body("x = torch.linalg.norm(action, dim=-1)", "y = F.cosine_similarity(action, action, dim=-1)"),
    "builtin names as locals": body("sum = angle", "max = 2.0 * sum"),
    "unicode names": body("θ = angle", "x = torch.cos(θ)"),
    "indexing": body("x = action[..., 0]", "y = action[:, None, 0:1]", "z = angle[:, None].T"),
    "break and continue": body("for i in range(3):", "    if i == 1:", "        continue", "    break"),
    "windows newlines": body("x = angle").replace("\n", "\r\n"),
}


@pytest.mark.parametrize("source", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(source):
    parsed = parse_reward(source, PENDULUM)
    assert parsed.problems == ()
    assert parsed.code is not None
    assert parsed.code.source == source
    given = {p.name: torch.rand(5, *p.field.shape) for p in parsed.code.parameters}
    reward, _ = run(source, given)
    assert reward.shape == (5,)


def test_a_reward_written_for_isaac_gym_passes_and_runs():
    parsed = parse_reward(EUREKA, REACHER)
    assert parsed.problems == ()
    assert parsed.code is not None
    assert [p.name for p in parsed.code.parameters] == ["fingertip_pos", "goal_pos", "joint_velocities"]
    assert parsed.code.component_names == ("approach", "penalty")
    given = {"fingertip_pos": torch.zeros(3, 2), "goal_pos": torch.ones(3, 2), "joint_velocities": torch.ones(3, 2)}
    reward, parts = run(EUREKA, given)
    torch.testing.assert_close(reward, torch.full((3,), math.exp(-10 * math.sqrt(2)) - 0.52))
    torch.testing.assert_close(reward, sum(parts.values()))


FORBIDDEN, SYNTAX, UNKNOWN, RETURN = Failure.FORBIDDEN, Failure.SYNTAX, Failure.UNKNOWN_FIELD, Failure.RETURN
# name: (source, kind, line, a word of the message)
REFUSED = {
    "empty": ("", Failure.NO_CODE, None, "no code"),
    "blank": (" \n\t\n", Failure.NO_CODE, None, "no code"),
    "comments": ("# nothing\n", Failure.NO_CODE, None, "comments"),
    "prose": ("I would reward the angle.", SYNTAX, 1, "not valid Python"),
    "nul": ("x = 1\n\0", SYNTAX, 2, "NUL"),
    "surrogate": ("x = '\ud800'", SYNTAX, None, "Unicode"),
    "unclosed": ("def compute_reward(angle):\n    return (angle, {}", SYNTAX, 2, "never closed"),
    "other name": ("def reward(angle):\n    return angle, {}\n", SYNTAX, 1, "rename `reward`"),
    "no function": ("import torch\n", SYNTAX, None, "no function"),
    "twice": ("def compute_reward(angle):\n    return angle, {}\n" * 2, SYNTAX, 3, "twice"),
    "no parameters": ("def compute_reward():\n    return 1, {}\n", SYNTAX, 1, "no parameters"),
    "same parameter twice": ("def compute_reward(angle, angle):\n    return angle, {}\n", SYNTAX, 1, "duplicate"),
    "break outside": (body("break"), SYNTAX, 7, "outside loop"),
    "return outside": ("return 1\n" + body("pass"), FORBIDDEN, 1, "module level"),
    "too long": ("x = 1\n" * 10_000, FORBIDDEN, None, "too long (10001 lines"),
    "too many characters": ("#" * 10_000_000, FORBIDDEN, None, "too long"),
    "too many nodes": (body("x = [" + "1, " * 20_000 + "]"), FORBIDDEN, None, "too long"),
    "too deep": (body("x = " + "-" * 90 + "1"), SYNTAX, 7, "nested too deeply"),
    "long sum": (body("x = " + " + ".join(["angle"] * 200)), SYNTAX, 7, "intermediate variables"),
    "huge number": (body("x = 0x" + "f" * 9000), FORBIDDEN, 7, "too large"),
    "infinite number": (body("x = 1e999"), FORBIDDEN, 7, "too large"),
    "unknown field": ("def compute_reward(angel):\n    return angel, {}\n", UNKNOWN, 1, "did you mean angle"),
    "constant as parameter": (
        "def compute_reward(angle, scale=2.0):\n    return angle, {}\n",
        UNKNOWN,
        1,
        "function's body",
    ),
    "self": ("def compute_reward(self, angle):\n    return angle, {}\n", UNKNOWN, 1, "remove `self`"),
    "field without parameter": (body("x = angular_velocity"), UNKNOWN, 7, "add `angular_velocity: Tensor`"),
    "previous without parameter": (body("x = prev_angle"), UNKNOWN, 7, "`prev_angle: Tensor`"),
    "no return": ("def compute_reward(angle):\n    x = angle\n", RETURN, 1, "return reward, components"),
    "bare return": ("def compute_reward(angle):\n    return\n", RETURN, 2, "return reward, components"),
    "three values": ("def compute_reward(angle):\n    return angle, {}, 1\n", RETURN, 2, "two things"),
    "dict only": ("def compute_reward(angle):\n    return {'a': angle}\n", RETURN, 2, "two things"),
    "number only": ("def compute_reward(angle):\n    return angle * 2\n", RETURN, 2, "two things"),
    "numpy": (
        "import numpy as np\ndef compute_reward(angle):\n    return np.abs(angle), {}\n",
        FORBIDDEN,
        1,
        "use torch instead",
    ),
    "undefined numpy": (body("x = np.abs(angle)"), FORBIDDEN, 7, "use torch instead of NumPy"),
    "missing import": (
        "def compute_reward(angle):\n    return torch.abs(angle), {}\n",
        FORBIDDEN,
        2,
        "add `import torch`",
    ),
    "missing Tensor": (
        "def compute_reward(angle: Tensor):\n    return angle, {}\n",
        FORBIDDEN,
        1,
        "from torch import Tensor",
    ),
    "missing Dict": (
        "def compute_reward(angle) -> Dict:\n    return angle, {}\n",
        FORBIDDEN,
        1,
        "from typing import Dict",
    ),
    "undefined": (body("x = speed * 2"), FORBIDDEN, 7, "`speed` is not defined"),
    "undefined function": (body("x = quat_mul(angle, angle)"), FORBIDDEN, 7, "`quat_mul` is not defined"),
    "self attribute": (body("x = self.dt"), FORBIDDEN, 7, "`self` does not exist"),
    "star import": ("from torch import *\n" + body("pass"), FORBIDDEN, 1, "import each name"),
    "import inside": (body("import torch"), FORBIDDEN, 7, "top of the file"),
    "while": (body("while True:", "    pass"), FORBIDDEN, 7, "torch.where"),
    "try": (body("try:", "    pass", "except ValueError:", "    pass"), FORBIDDEN, 7, "`try`"),
    "with": (body("with torch.no_grad():", "    pass"), FORBIDDEN, 7, "`with`"),
    "class": ("class A:\n    pass\n" + body("pass"), FORBIDDEN, 1, "classes"),
    "class inside": (body("class A:", "    pass"), FORBIDDEN, 7, "classes"),
    "lambda": (body("f = lambda x: x"), FORBIDDEN, 7, "`lambda`"),
    "global": (body("global x"), FORBIDDEN, 7, "no memory"),
    "del": (body("x = 1", "del x"), FORBIDDEN, 8, "`del`"),
    "assert": (body("assert angle.ndim == 1"), FORBIDDEN, 7, "`assert`"),
    "raise": (body("raise ValueError"), FORBIDDEN, 7, "`raise`"),
    "match": (body("match angle:", "    case 1:", "        pass"), FORBIDDEN, 7, "`match`"),
    "yield": (body("x = yield"), FORBIDDEN, 7, "`yield`"),
    "async": ("async def f():\n    pass\n" + body("pass"), FORBIDDEN, 1, "`async`"),
    "async comprehension": (body("x = [y async for y in (1,)]"), FORBIDDEN, 7, "`async`"),
    "set": (body("x = {1, 2}"), FORBIDDEN, 7, "sets"),
    "main guard": (body("pass") + "if __name__ == '__main__':\n    pass\n", FORBIDDEN, 9, "module level"),
    "call at module level": (body("pass") + "print(1)\n", FORBIDDEN, 9, "module level"),
    "list at module level": ("CACHE = []\n" + body("pass"), FORBIDDEN, 1, "module-level value"),
    "print": (body("print(angle)"), FORBIDDEN, 7, "remove it"),
    "item": (body("x = angle.item()"), FORBIDDEN, 7, "keep everything batched"),
    "tolist": (body("x = angle.tolist()"), FORBIDDEN, 7, "batched"),
    "numpy method": (body("x = angle.cpu().numpy()"), FORBIDDEN, 7, "device"),
    "cuda": (body("x = angle.cuda()"), FORBIDDEN, 7, "device"),
    "in-place method": (body("x = angle.clamp_(0, 1)"), FORBIDDEN, 7, "`.clamp(...)`"),
    "typing mistake": (body("x = torch.sigmoidd(angle)"), FORBIDDEN, 7, "did you mean torch.sigmoid"),
    "method mistake": (body("x = angle.clampp(0)"), FORBIDDEN, 7, "did you mean .clamp"),
    "random": (body("x = torch.rand_like(angle)"), FORBIDDEN, 7, "deterministic"),
    "uninitialised": (body("x = torch.empty_like(angle)"), FORBIDDEN, 7, "torch.zeros_like"),
    "augmented input": (body("angle += 1"), FORBIDDEN, 7, "angle + ..."),
    "augmented view": (body("x = action[:, 0]", "x *= 2"), FORBIDDEN, 8, "x * ..."),
    "augmented second name": (body("x = angle.detach()", "x -= 2"), FORBIDDEN, 8, "in place"),
    "assigned input": (body("action[:, 0] = 0"), FORBIDDEN, 7, "action.clone()"),
    "assigned view": (body("x, y = angle, action", "y[0] = 1"), FORBIDDEN, 8, "y.clone()"),
    "loop target": (body("for action[0] in (1, 2):", "    pass"), FORBIDDEN, 7, "in place"),
    "attribute assignment": (body("angle.data = action"), FORBIDDEN, 7, "cannot be assigned"),
    "out argument": (body("x = torch.add(angle, angle, out=angle)"), FORBIDDEN, 7, "`out=`"),
    "inplace argument": (body("x = F.relu(angle, inplace=True)"), FORBIDDEN, 7, "`inplace=`"),
    "inplace by position": (body("x = F.relu(angle, True)"), FORBIDDEN, 7, "in place"),
    "gradients": (body("x = torch.tensor([1.0], requires_grad=True)"), FORBIDDEN, 7, "`requires_grad=`"),
    "loop over rows": (body("for x in angle:", "    pass"), FORBIDDEN, 7, "over the batch"),
    "loop over row numbers": (body("for i in range(angle.shape[0]):", "    pass"), FORBIDDEN, 7, "over the batch"),
    "loop over counted rows": (
        body("n = len(angle)", "for i in range(n):", "    pass"),
        FORBIDDEN,
        8,
        "over the batch",
    ),
    "comprehension over rows": (body("x = [float(a) for a in angle]"), FORBIDDEN, 7, "over the batch"),
    "zip over rows": (body("for a, b in zip(angle, action):", "    pass"), FORBIDDEN, 7, "over the batch"),
    "if on an input": (body("if angle > 0:", "    pass"), FORBIDDEN, 7, "torch.where"),
    "if on a distance": (
        body("d = torch.norm(action, dim=-1)", "if d < 0.1:", "    pass"),
        FORBIDDEN,
        8,
        "torch.where",
    ),
    "and on inputs": (body("x = (angle > 0) and (angle < 1)"), FORBIDDEN, 7, "`&`"),
    "not on an input": (body("x = not angle > 0"), FORBIDDEN, 7, "`~`"),
    "conditional on an input": (body("x = 1.0 if angle > 0 else 0.0"), FORBIDDEN, 7, "torch.where"),
    "max of inputs": (body("x = max(angle, 0.0)"), FORBIDDEN, 7, "torch.maximum"),
    "float of an input": (body("x = float(angle)"), FORBIDDEN, 7, "torch.where"),
    "star arguments": (body("x = torch.stack(*[angle])"), FORBIDDEN, 7, "unpacking"),
    "double star": (body("x = dict(**{})"), FORBIDDEN, 7, "`**`"),
    "double star in a dict": (body("x = {**{}}"), FORBIDDEN, 7, "`**`"),
    "variadic": ("def compute_reward(*args):\n    return args, {}\n", FORBIDDEN, 1, "`*args`"),
    "positional only": ("def compute_reward(angle, /):\n    return angle, {}\n", FORBIDDEN, 1, "`/`"),
    "bytes": (body("x = b'a'"), FORBIDDEN, 7, "bytes"),
    "complex": (body("x = 1j"), FORBIDDEN, 7, "complex"),
    "method as a value": (body("x = angle.abs"), FORBIDDEN, 7, "call it"),
    "function as a value": (body("f = torch.exp"), FORBIDDEN, 7, "only be called"),
    "builtin as a value": (body("f = abs"), FORBIDDEN, 7, "only be called"),
    "call of a value": (body("x = angle(1)"), FORBIDDEN, 7, "is a value"),
    "taken name": (body("torch = 1"), FORBIDDEN, 7, "choose another name"),
    "helper with a taken name": ("def abs(x):\n    return x\n" + body("pass"), FORBIDDEN, 1, "choose another name"),
}


@pytest.mark.parametrize(("source", "kind", "line", "word"), REFUSED.values(), ids=REFUSED)
def test_refused(source, kind, line, word):
    parsed = parse_reward(source, PENDULUM)
    assert parsed.code is None
    assert any(p.kind is kind and p.line == line and word in p.message for p in parsed.problems), parsed.problems
    assert all("\n" not in p.message for p in parsed.problems)


@pytest.mark.parametrize(
    "opening", ["-", "(", "[", "{", "not ", "f(", "lambda: ", "1 if 1 else ", "a[", "f'{", "1 ** "]
)
def test_nesting_beyond_the_parser_is_one_problem(opening):
    for depth in (200, 1000, 4000):
        found = problems("x = " + opening * depth + "1")
        assert [p.kind for p in found] == [SYNTAX]


def test_ten_thousand_lines_give_one_problem():
    assert len(problems("def f(x):\n    return eval(x)\n" * 5000)) == 1


def test_all_problems_are_reported_most_severe_first_and_capped():
    source = "def compute_reward(angel):\n    x = eval('1')\n    y = angel.item()\n"
    kinds = [p.kind for p in problems(source)]
    assert kinds == [FORBIDDEN, FORBIDDEN, UNKNOWN, RETURN]
    many = body(*(f"x{i} = bad{i}" for i in range(500)))
    assert len(problems(many)) == MAX_PROBLEMS
    assert [p.line for p in problems(many)] == list(range(7, 7 + MAX_PROBLEMS))


def test_one_bad_import_is_one_problem():
    source = "import numpy as np\ndef compute_reward(angle):\n    x = np.abs(angle) + np.pi\n    return x, {}\n"
    assert len(problems(source)) == 1


@pytest.mark.parametrize("path", sorted(reward_names.FUNCTIONS | reward_names.VALUES))
def test_every_allowed_path_exists_and_hides_no_output_argument(path):
    value = {"torch": torch, "math": math}[path.split(".")[0]]
    for part in path.split(".")[1:]:
        value = getattr(value, part)
    assert callable(value) == (path in reward_names.FUNCTIONS)
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return  # built into torch: `out` is given by keyword only
    by_position = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    limit = reward_names.POSITIONAL_LIMIT.get(path, len(by_position))
    assert not set(by_position[:limit]) & {"out", "inplace"}


def test_every_allowed_method_exists_and_is_pure():
    owners = (torch.Tensor, dict, list)
    for name in reward_names.METHODS:
        assert any(hasattr(owner, name) for owner in owners), name
        assert not name.endswith("_")
