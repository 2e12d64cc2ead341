"""From a task's schema to a grammar for constrained decoding: a small model's answer is a valid reward by construction.

The model writes only what matters, the terms: lines `name = expression` over the task's features (`synth.features`).
`AnswerFrame.finish` puts them into a readable reward with the signature, the definitions used and the sum. In a
mutation the kept terms are fixed text and the retuned ones have free numbers.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

from synth.features import Feature, task_features
from synth.gbnf import Node, Repeat, Rule, alt, render, sample, seq
from synth.task import PREFIXES, Task

INDENT = "    "
_WEIGHTS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_WIDTHS = (0.03, 0.06, 0.12, 0.25, 0.5)  # of a feature's scale
_TARGETS = (-0.75, -0.5, -0.25, 0.25, 0.5, 0.75)  # of a feature's scale
_STEP = 0.03  # usual change of a feature in one step, as a share of its scale
_NUMBER = re.compile(r"(?<![\w.\[])\d+\.\d+(?![\w.])")


@dataclass(frozen=True)
class TermPlan:
    """What the model is to write: `kept` terms stay as they are, `retuned` ones get new numbers, new ones follow."""

    kept: tuple[str, ...] = ()
    retuned: tuple[str, ...] = ()
    least_new: int = 2
    most_new: int = 4


@dataclass(frozen=True)
class AnswerFrame:
    """The fixed beginning of the answer, the grammar of the rest, and how both become a reward."""

    task: Task
    plan: TermPlan
    prefix: str
    root: Node

    @property
    def grammar(self) -> str:
        """GBNF of what follows the prefix."""
        return render(self.root)

    def random_answer(self, rng: random.Random) -> str:
        """What no model would write: a random text of the same grammar (the control)."""
        return sample(self.root, rng)

    def finish(self, answer: str) -> str:
        """The reward's source; an answer cut off in the middle keeps its whole lines."""
        terms: dict[str, str] = {}
        for line in [*self.plan.kept, *answer.splitlines()]:
            match = re.fullmatch(r"\s*(\w+) = (.+?)\s*", line)
            if match and match[1] != "reward" and _is_expression(match[2]):
                name = _free_name(match[1], match[2], terms)
                terms[name] = match[2]
        return assemble(self.task, terms)


def build_frame(task: Task, plan: TermPlan | None = None) -> AnswerFrame:
    """The frame for new terms on this task, or for a mutation when the plan keeps some."""
    plan = plan or TermPlan()
    body = "".join(f"{INDENT}{line}\n" for line in plan.kept)
    parts: list[Node | str] = [_with_free_numbers(line) for line in plan.retuned]
    if plan.most_new:
        parts.append(Repeat(_new_term(task), plan.least_new, plan.most_new))
    return AnswerFrame(task, plan, f"{signature(task)}\n{body}", seq(*parts, f"{INDENT}reward ="))


def signature(task: Task) -> str:
    """The first lines as the small model sees them: every field, no imports."""
    return f"def compute_reward({', '.join(task.field_names())}):"


def assemble(task: Task, terms: dict[str, str]) -> str:
    """A complete reward from its terms; parameters and definitions are those the terms use."""
    expressions = dict(terms) or {"nothing": f"torch.zeros_like({task_features(task)[0].name})"}
    used = set().union(*(_names(e) for e in expressions.values()))
    definitions = [f.line() for f in task_features(task) if f.definition and f.name in used]
    lines = [line for line in definitions if line is not None]
    for line in lines:
        used |= _names(line.split(" = ", 1)[1])
    fields = task.field_names()
    possible = [*fields, "time", *(p + n for p in PREFIXES for n in fields)]
    parameters = ",\n    ".join(f"{name}: Tensor" for name in possible if name in used)
    body = [*lines, *(f"{name} = {expression}" for name, expression in expressions.items())]
    total = " + ".join(expressions)
    pairs = ",\n        ".join(f'"{name}": {name}' for name in expressions)
    text = "\n".join(f"{INDENT}{line}" for line in body)
    return (
        "from typing import Dict, Tuple\n\nimport torch\nfrom torch import Tensor\n\n\n"
        f"def compute_reward(\n    {parameters},\n) -> Tuple[Tensor, Dict[str, Tensor]]:\n"
        f"{text}\n{INDENT}reward = {total}\n{INDENT}return reward, {{\n        {pairs},\n    }}\n"
    )


def component_lines(source: str) -> dict[str, str]:
    """Terms of a reward whose components are plain assignments: name to `name = expression`; {} for other forms.

    Definitions that the terms share (features) are not terms; a term that reads another local value than a feature's
    definition cannot be moved to another reward, and makes the answer {}.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    functions = [n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "compute_reward"]
    if len(functions) != 1 or len([n for n in module.body if isinstance(n, ast.FunctionDef)]) != 1:
        return {}
    returned = functions[0].body[-1]
    if not (isinstance(returned, ast.Return) and isinstance(returned.value, ast.Tuple)):
        return {}
    table = returned.value.elts[-1]
    if not isinstance(table, ast.Dict) or not all(isinstance(v, ast.Name) for v in table.values):
        return {}
    assigned = {
        target.id: ast.unparse(node)
        for node in functions[0].body
        if isinstance(node, ast.Assign) and len(node.targets) == 1
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    names = [value.id for value in table.values if isinstance(value, ast.Name)]
    return {name: assigned[name] for name in names} if all(name in assigned for name in names) else {}


def movable_lines(source: str, task: Task) -> dict[str, str]:
    """`component_lines` restricted to terms that read only fields and features of the task."""
    known = {f.name for f in task_features(task)} | set(task.field_names()) | {"time", "torch"}
    known |= {p + n for p in PREFIXES for n in task.field_names()}
    lines = component_lines(source)
    return {n: line for n, line in lines.items() if _names(line.split(" = ", 1)[1]) <= known}


def _names(expression: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(expression, mode="eval")) if isinstance(n, ast.Name)}


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True


def _free_name(name: str, expression: str, taken: dict[str, str]) -> str:
    """A second term of the same name is a second term, unless it says the same."""
    number, candidate = 2, name
    while candidate in taken and taken[candidate] != expression:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


def _with_free_numbers(line: str) -> Node:
    """A term whose decimal numbers may become other ones of about the same size."""
    parts: list[Node | str] = [INDENT]
    end = 0
    for match in _NUMBER.finditer(line):
        parts += [line[end : match.start()], _numbers(float(match[0]) * f for f in (0.1, 0.25, 0.5, 1, 2, 4, 10))]
        end = match.end()
    return seq(*parts, line[end:] + "\n")


def _numbers(values: Iterable[float]) -> Node:
    return alt(dict.fromkeys(_number(v) for v in values))


def _number(value: float) -> str:
    """Two significant digits, never an exponent: 0.05, 1.5, 250.0."""
    text = f"{float(f'{value:.2g}'):.6f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _new_term(task: Task) -> Node:
    found = task_features(task)
    spoken = [float(n) for n in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", task.description)]
    gates = Rule("gate", alt(g for f in found if f.kind != "cost" for g in _gates(f)))
    terms = [Rule(f"t{index}", _terms_of(f, spoken, gates)) for index, f in enumerate(found)]
    first = next((f.name for f in found if f.definition is None), None) or found[0].name
    weight = Rule("weight", _numbers(_WEIGHTS))
    terms.append(
        Rule(
            "alive",
            alt(
                [
                    seq("alive = ", weight, f" * torch.ones_like({first})"),
                    seq("hurry = -", weight, f" * torch.ones_like({first})"),
                ]
            ),
        )
    )
    return Rule("term", seq(INDENT, alt(terms), "\n"))


def _terms_of(f: Feature, spoken: list[float], gates: Node) -> Node:
    """Every form in which one feature makes a term; the name tells feature and form."""
    x, s = f.name, f.scale
    linear = _numbers(w / s for w in _WEIGHTS)
    square = _numbers(w / s**2 for w in _WEIGHTS)
    weight = Rule("weight", _numbers(_WEIGHTS))
    if f.kind == "cost":
        return seq(f"{x}_penalty = -", linear, f" * {x}")
    if f.kind == "flag":
        return alt([seq(f"{x}_bonus = ", weight, f" * {x}"), seq(f"{x}_penalty = -", weight, f" * {x}")])
    forms: list[Node] = []
    if f.kind == "cosine":
        forms += [seq(f"{x}_bonus = ", weight, f" * {x}"), seq(f"{x}_close = ", weight, f" * torch.square(1.0 + {x})")]
        forms.append(seq(f"{x}_within = ", weight, f" * ({x} > ", _numbers((0.7, 0.9, 0.95, 0.98)), ").float()"))
    else:
        size = x if f.kind == "positive" else f"torch.abs({x})"
        narrow = _numbers(1.0 / (w * s) ** 2 for w in _WIDTHS)
        bell = seq("torch.exp(-", narrow, f" * torch.square({x}))")
        forms += [
            seq(f"{x}_penalty = -", alt([seq(linear, f" * {size}"), seq(square, f" * torch.square({x})")])),
            seq(f"{x}_close = ", weight, " * ", bell),
            seq(f"{x}_close_gated = ", weight, " * ", bell, " * ", gates),
            seq(f"{x}_within = ", weight, f" * ({size} < ", _numbers(w * s for w in _WIDTHS), ").float()"),
            seq(f"{x}_more = ", alt([seq(linear, f" * {size}"), seq(square, f" * torch.square({x})")])),
        ]
        forms += _target_terms(f, spoken, weight)
        if f.kind == "signed":
            forms.append(seq(f"{x}_up = ", linear, f" * {x}"))
            forms.append(seq(f"{x}_down = -", linear, f" * {x}"))
    if f.previous is not None:
        forms.append(_progress(f))
    return alt(forms)


def _target_terms(f: Feature, spoken: list[float], weight: Node) -> list[Node]:
    """Closeness to a value other than zero: numbers of the task's text within the range first, then shares of it."""
    x, s = f.name, f.scale
    low = f.low if f.low is not None else -s
    high = f.high if f.high is not None else s
    targets = [t for t in (*spoken, *(t * s for t in _TARGETS)) if low < t < high and t != 0.0]
    if not targets:
        return []
    signed = [f" - {_number(t)}" if t > 0 else f" + {_number(-t)}" for t in targets]
    narrow = _numbers(1.0 / (w * s) ** 2 for w in _WIDTHS)
    offset = Rule(f"o{x.replace('_', '-')}", alt(dict.fromkeys(signed)))
    limits = Rule(f"l{x.replace('_', '-')}", alt(dict.fromkeys(_signed(t) for t in targets)))
    return [
        seq(f"{x}_at = ", weight, " * torch.exp(-", narrow, f" * torch.square({x}", offset, "))"),
        seq(f"{x}_off = -", _numbers(w / s for w in _WEIGHTS), f" * torch.abs({x}", offset, ")"),
        seq(f"{x}_above = ", weight, f" * ({x} > ", limits, ").float()"),
        seq(f"{x}_below = ", weight, f" * ({x} < ", limits, ").float()"),
    ]


def _signed(value: float) -> str:
    return _number(value) if value >= 0 else f"-{_number(-value)}"


def _progress(f: Feature) -> Node:
    """Change since the step before: of the value, of its size."""
    gain = _numbers(w / (f.scale * _STEP) for w in _WEIGHTS)
    before, x = f.previous, f.name
    forms = [seq(f"{x}_gain = ", gain, f" * ({x} - {before})")]
    if f.kind == "signed":
        forms.append(seq(f"{x}_size_gain = ", gain, f" * (torch.abs({x}) - torch.abs({before}))"))
        forms.append(seq(f"{x}_size_drop = ", gain, f" * (torch.abs({before}) - torch.abs({x}))"))
    else:
        forms.append(seq(f"{x}_drop = ", gain, f" * ({before} - {x})"))
    return alt(forms)


def _gates(f: Feature) -> list[Node]:
    """Factors in [0, 1] that switch another term on."""
    x, s = f.name, f.scale
    if f.kind == "flag":
        return [seq(f"(1.0 - {x})")]
    if f.kind == "cosine":
        return [seq(f"(0.5 + 0.5 * {x})")]
    return [seq("torch.exp(-", _numbers(1.0 / (w * s) ** 2 for w in _WIDTHS), f" * torch.square({x}))")]
