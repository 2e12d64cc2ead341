"""Ways around the static gate, each by name, and generated texts: nothing raises, nothing harmful is accepted."""

import ast
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxes.base import Failure
from synth.reward import parse_reward
from synth.task import discover_tasks, load_task

PENDULUM = load_task("pendulum_swingup")
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


def test_the_frame_around_the_escapes_is_accepted():
    assert parse_reward(body("pass"), PENDULUM).problems == ()


ESCAPES = {
    "class walk": body("x = ().__class__.__base__.__subclasses__()"),
    "class walk on a tensor": body("x = angle.__class__"),
    "function globals": body("x = compute_reward.__globals__"),
    "function code": "def f(x):\n    return x\n" + body("x = f.__code__"),
    "method self": body("x = angle.abs.__self__"),
    "torch.os": body("x = torch.os.system('id')"),
    "torch.sys": body("x = torch.sys.modules"),
    "torch.load": body("x = torch.load('f')"),
    "torch.save": body("torch.save(angle, 'f')"),
    "torch.ops": body("x = torch.ops.aten.add(angle, angle)"),
    "torch.hub": body("x = torch.hub.load('a', 'b')"),
    "torch.utils": body("x = torch.utils.cpp_extension.load_inline('a', 'b')"),
    "torch.classes": body("torch.classes.load_library('f')"),
    "torch._C": body("x = torch._C._from_dlpack(angle)"),
    "torch.serialization": "import torch as t\ndef compute_reward(angle):\n    x = t.serialization.os\n"
    "    return x, {}\n",
    "torch.manual_seed": body("torch.manual_seed(0)"),
    "torch.set_num_threads": body("torch.set_num_threads(64)"),
    "torch.set_default_dtype": body("torch.set_default_dtype(torch.float64)"),
    "torch.jit.script call": body("f = torch.jit.script(compute_reward)"),
    "torch.jit.load": body("f = torch.jit.load('f')"),
    "torch.compile": body("f = torch.compile(angle)"),
    "torch.from_file": body("x = torch.from_file('/etc/passwd', size=4)"),
    "torch.frombuffer": body("x = torch.frombuffer(angle)"),
    "torch.testing": body("x = torch.testing.os"),
    "torch.multiprocessing": body("x = torch.multiprocessing.Process()"),
    "torch.nn module": body("x = torch.nn.Linear(1, 1)"),
    "math.__loader__": body("x = math.__loader__"),
    "from torch import load": "from torch import load\n" + body("x = load('f')"),
    "from torch import os": "from torch import os\n" + body("x = os.system('id')"),
    "from torch import hub": "from torch import hub as t\n" + body("x = t.load('f')"),
    "import torch.hub": "import torch.hub\n" + body("pass"),
    "import os": "import os\n" + body("x = os.system('id')"),
    "import os as torch": "import os as torch\ndef compute_reward(angle):\n    x = torch.system('id')\n"
    "    return x, {}\n",
    "import a list": "import torch, os\n" + body("pass"),
    "relative import": "from .torch import exp\n" + body("x = exp(angle)"),
    "future attribute": "from __future__ import annotations\n" + body("x = annotations.compiler_flag"),
    "alias assignment": body("x = torch", "y = x.load('f')"),
    "module alias at module level": "import torch\nx = torch\n" + body("pass"),
    "function alias": body("f = torch.load", "f('x')"),
    "walrus alias": body("(f := torch).load('x')"),
    "tuple alias": body("x = (torch, 1)[0].load('f')"),
    "conditional alias": body("x = (torch if True else torch).load('f')"),
    "argument alias": "def f(x):\n    return x.load('f')\n" + body("y = f(torch)"),
    "eval": body("x = eval('1')"),
    "exec": body("exec('1')"),
    "compile": body("compile('1', '', 'eval')"),
    "open": body("x = open('/etc/passwd')"),
    "input": body("x = input()"),
    "getattr": body("x = getattr(torch, 'load')('f')"),
    "setattr": body("setattr(angle, 'data', action)"),
    "vars": body("x = vars(torch)"),
    "globals": body("x = globals()['torch']"),
    "__import__": body("x = __import__('os')"),
    "__builtins__": body("x = __builtins__['eval']"),
    "type": body("x = type(angle)"),
    "breakpoint": body("breakpoint()"),
    "fullwidth eval": body("x = ｅval('1')"),
    "fullwidth attribute": body("x = torch.ｌoad('f')"),
    "fullwidth dunder": body("x = angle.__ｃlass__"),
    "italic import": "import 𝘰𝘴\n" + body("pass"),
    "f-string attribute": body("x = f'{angle.__class__}'"),
    "f-string call": body("x = f'{eval(1)}'"),
    "f-string conversion": body("x = f'{angle!r}'"),
    "f-string format": body("x = f'{angle:>{action}}'"),
    "str.format": body("x = '{0.__class__}'.format(angle)"),
    "str.format_map": body("x = '{a.__class__}'.format_map({'a': angle})"),
    "default argument": "def f(x=eval('1')):\n    return x\n" + body("pass"),
    "keyword default": "import torch\ndef f(*, x=torch.load('f')):\n    return x\n" + body("pass"),
    "default attribute": "import torch\ndef f(x=torch.os):\n    return x\n" + body("pass"),
    "decorator": "@eval\n" + body("pass").removeprefix(HEAD),
    "decorator call": HEAD + "@torch.jit.script(1)\n" + body("pass").removeprefix(HEAD),
    "decorator walk": HEAD + "@torch.hub.load\n" + body("pass").removeprefix(HEAD),
    "second decorator": HEAD + "@torch.jit.script\n@torch.compile\n" + body("pass").removeprefix(HEAD),
    "nested function": body("def f():", "    return angle.__class__", "x = f()"),
    "annotation of a local": body("x: eval('1') = 1"),
    "bare annotation": body("x: eval('1')"),
    "annotation of a parameter": "def compute_reward(angle: eval('1')):\n    return angle, {}\n",
    "annotation of the result": "def compute_reward(angle) -> print(1):\n    return angle, {}\n",
    "string annotation": "def compute_reward(angle: 'eval(1)'):\n    return angle, {}\n",
    "string in a string": "def compute_reward(angle: \"list['eval(1)']\"):\n    return angle, {}\n",
    "annotation by subscript": HEAD + "def compute_reward(angle: Dict[eval('1')]):\n    return angle, {}\n",
    "annotation walk": HEAD + "def compute_reward(angle: torch.os):\n    return angle, {}\n",
    "module annotation": "x: eval('1') = 1\n" + body("pass"),
    "annotate argument": body("x = torch.jit.annotate(eval('1'), {})"),
    "comprehension target": body("x = [torch for torch in (1,)]"),
    "comprehension shadow": body("y = [eval for eval in (1,)]", "x = max(['1'], key=eval)"),
    "comprehension body": body("x = [eval('1') for i in range(1)]"),
    "comprehension condition": body("x = [i for i in range(1) if eval('1')]"),
    "dict comprehension": body("x = {eval('1'): 1 for i in range(1)}"),
    "generator": body("x = sum(eval('1') for i in range(1))"),
    "key argument": body("x = max([1, 2], key=abs)"),
    "subscript": body("x = angle[eval('1')]"),
    "slice": body("x = angle[eval('1'):]"),
    "keyword": body("x = torch.sum(angle, dim=eval('1'))"),
    "call of a call": body("x = torch.abs(angle)(1)"),
    "call of a subscript": body("x = {'a': angle}['a']()"),
    "call of a string": body("x = 'a'()"),
    "matmul": body("x = angle @ eval('1')"),
    "chained comparison": body("x = 1 < 2 < eval('1')"),
    "augmented attribute": body("angle.grad += 1"),
    "unpacked attribute": body("angle.data, x = 1, 2"),
    "loop attribute": body("for angle.data in (1,):", "    pass"),
    "tensor storage": body("x = angle.storage()"),
    "untyped storage": body("x = angle.untyped_storage().data_ptr()"),
    "set_": body("angle.set_(action)"),
    "apply_": body("angle.apply_(abs)"),
    "share_memory_": body("angle.share_memory_()"),
    "register_hook": body("angle.register_hook(abs)"),
    "map_": body("angle.map_(action, abs)"),
    "module dunder": "__builtins__ = 1\n" + body("pass"),
    "module constant attribute": "X = 1\n" + body("y = X.real"),
    "module constant call": "X = 1\n" + body("y = X(1)"),
    "module overwritten": "import torch\ntorch = 1\n" + body("pass"),
    "function named as a module": "import torch\ndef torch(x):\n    return x\n" + body("pass"),
    "global names": body("global compute_reward", "compute_reward = 1"),
    "exec in a helper": "def f(x):\n    return exec(x)\n" + body("pass"),
    "after the return": "def compute_reward(angle):\n    return angle, {}\n    eval('1')\n",
    "expression statement": body("angle.__class__"),
    "lambda default": body("x = (lambda y=eval('1'): y)()"),
    "except star": body("try:", "    pass", "except Exception as torch:", "    pass"),
    "with target": body("with angle as x:", "    pass"),
    "match capture": body("match angle:", "    case torch:", "        pass"),
}


@pytest.mark.parametrize("source", ESCAPES.values(), ids=ESCAPES)
def test_escape_is_refused(source):
    parsed = parse_reward(source, PENDULUM)
    assert parsed.code is None
    assert parsed.problems[0].kind is Failure.FORBIDDEN


# Node types that no accepted reward may hold, whatever the way it came about.
NEVER = (
    ast.While,
    ast.Try,
    ast.With,
    ast.AsyncWith,
    ast.AsyncFor,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.Global,
    ast.Nonlocal,
    ast.Delete,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Starred,
    ast.Raise,
    ast.Assert,
    ast.Set,
    ast.SetComp,
)


def assert_harmless(source: str) -> None:
    """Hold an accepted source against an independent, flat reading of its tree."""
    tree = ast.parse(source)
    modules = {"torch", "math", "typing", "__future__"}
    for node in ast.walk(tree):
        assert not isinstance(node, NEVER)
        if isinstance(node, ast.Import):
            assert all(a.name.split(".")[0] in modules for a in node.names)
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in modules
        if isinstance(node, ast.Name):
            assert node.id not in ("eval", "exec", "getattr", "open", "compile", "globals", "vars", "type", "input")
            assert not node.id.startswith("__")
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")
            assert not node.attr.endswith("_")
            assert node.attr not in ("load", "os", "sys", "hub", "ops", "data", "item", "numpy", "format", "storage")


EXPERTS = [load_task(name).expert_path.read_text(encoding="utf-8") for name in discover_tasks()]
FRAGMENTS = [
    "eval('1')",
    "angle.__class__",
    "torch.os",
    "torch.load",
    "lambda: 0",
    "while True:",
    "\n",
    "    ",
    "(",
    ")",
    "'",
    '"""',
    "angle",
    "+=",
    "= ",
    "**",
    "torch.",
    ".item()",
    "for x in angle:",
    "import os\n",
    "return",
    "f'{angle.data}'",
    "\0",
    "\\",
    "@",
    ":",
    "ｅval",
    "def compute_reward(",
    "not ",
    "[",
    "{",
    "*angle",
    "0x",
    "1e999",
    "#",
    "\t",
    "\r",
    "\x0c",
    "; ",
    ":=",
]
relaxed = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(st.text(alphabet=st.characters(), max_size=300))
def test_random_text_never_raises(text):
    parsed = parse_reward(text, PENDULUM)
    assert (parsed.code is None) == bool(parsed.problems)


@relaxed
@given(
    st.sampled_from(range(len(EXPERTS))),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(FRAGMENTS)), min_size=1, max_size=4),
)
def test_mutated_experts_never_raise_and_are_harmless_when_accepted(which, edits):
    task, text = load_task(discover_tasks()[which]), EXPERTS[which]
    for where, length, fragment in edits:
        start = int(where * len(text))
        text = text[:start] + fragment + text[start + length :]
    parsed = parse_reward(text, task)
    assert (parsed.code is None) == bool(parsed.problems)
    if parsed.code is not None:
        assert_harmless(text)
        compile(text, "<accepted>", "exec")


NAMES = st.sampled_from(
    ["angle", "action", "torch", "math", "eval", "x", "compute_reward", "F", "abs", "__import__", "θ"]
)
ATTRIBUTES = st.sampled_from(
    ["abs", "load", "os", "exp", "__class__", "data", "T", "clamp_", "pi", "values", "item", "format"]
)
EXPRESSIONS = st.recursive(
    NAMES | st.sampled_from(["1", "0.5", "'a'", "None", "True", "b''", "2j"]),
    lambda inner: st.one_of(
        st.builds("({}).{}".format, inner, ATTRIBUTES),
        st.builds("{}.{}".format, NAMES, ATTRIBUTES),
        st.builds("{}({})".format, inner, inner),
        st.builds("{}.{}({})".format, NAMES, ATTRIBUTES, inner),
        st.builds("({} + {})".format, inner, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("[{} for {} in ({},)]".format, inner, NAMES, inner),
        st.builds("(lambda {}: {})".format, NAMES, inner),
        st.builds("({} := {})".format, NAMES, inner),
        st.builds("{{{}: {}}}".format, inner, inner),
        st.builds("max({}, key={})".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EXPRESSIONS)
def test_generated_expressions_are_harmless_when_accepted(expression):
    source = body(f"y = {expression}")
    if parse_reward(source, PENDULUM).code is not None:
        assert_harmless(source)
