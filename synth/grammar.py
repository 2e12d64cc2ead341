"""From a task's schema to a grammar for constrained decoding: a small model's answer is a valid reward by construction.

The model writes only what matters, the terms: lines `name = expression` over the task's features (`synth.features`).
`AnswerFrame.finish` puts them into a readable reward with the signature, the definitions used and the sum. In a
mutation the kept terms are fixed text and the retuned ones have free numbers.
"""

from __future__ import annotations

import ast
import random
import re
from dataclasses import dataclass, replace

from synth.features import task_features
from synth.gbnf import Node, render, sample, seq, thin
from synth.task import PREFIXES, Task
from synth.terms import Terms, numbers

INDENT = "    "
# As this module writes them, and as `ast.unparse` does: 0.00005 becomes 5e-05.
_NUMBER = re.compile(r"(?<![\w.\[])(?:\d+\.\d+|\d+(?:\.\d+)?e[+-]?\d+)(?![\w.])")


@dataclass(frozen=True)
class TermPlan:
    """What the model is to write: `kept` terms stay as they are, `retuned` ones get new numbers, new ones follow.

    `goals` and `costs` give, for every new term, the names of the features it may be about.
    """

    kept: tuple[str, ...] = ()
    retuned: tuple[str, ...] = ()
    goals: tuple[tuple[str, ...], ...] = ()
    costs: tuple[tuple[str, ...], ...] = ()
    constant: bool = False

    @property
    def fresh(self) -> bool:
        """Whether it starts from nothing."""
        return not self.kept and not self.retuned


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

    def thinned(self, rng: random.Random, share: float) -> AnswerFrame:
        """The same frame with a random share of the grammar's alternatives (`synth.gbnf.thin`)."""
        return replace(self, root=thin(self.root, rng, share))

    def random_answer(self, rng: random.Random) -> str:
        """What no model would write: a random text of the same grammar (the control)."""
        return sample(self.root, rng)

    def finish(self, answer: str) -> str:
        """The reward's source; an answer cut off in the middle keeps its whole lines."""
        terms: dict[str, str] = {}
        whole = answer.splitlines(keepends=True)
        whole = [line for line in whole if line.endswith("\n")]  # half a term can be valid and say something else
        for line in [*self.plan.kept, *whole]:
            match = re.fullmatch(r"\s*(\w+) = (.+?)\s*", line)
            if match and match[1] != "reward" and _is_expression(match[2]):
                name = _free_name(match[1], match[2], terms)
                terms[name] = match[2]
        return assemble(self.task, terms)


def build_frame(task: Task, plan: TermPlan) -> AnswerFrame:
    """The frame of an answer that follows the plan."""
    terms = Terms(task, INDENT)
    body = "".join(f"{INDENT}{line}\n" for line in plan.kept)
    parts: list[Node | str] = [_with_free_numbers(line) for line in plan.retuned]
    parts += [terms.goal(features) for features in plan.goals]
    parts += [terms.cost(features) for features in plan.costs]
    if plan.constant:
        parts.append(terms.constant())
    return AnswerFrame(task, plan, f"{signature(task)}\n{body}", seq(*parts, f"{INDENT}reward ="))


def whole_plan(task: Task, rng: random.Random) -> TermPlan:
    """A reward from nothing: one to three goals on different features, up to two costs, perhaps a constant.

    The first goal is about the way to a target where the task has one; a rate is wanted now and then.
    """
    terms = Terms(task, INDENT)
    pool = [name for name in terms.states if name not in terms.errors]
    rng.shuffle(pool)
    if terms.rates and (not pool or rng.random() < 0.25):
        pool.insert(rng.randint(0, len(pool)), rng.choice(terms.rates))
    groups = [terms.errors] if terms.errors else []
    wanted = rng.choice((0, 0, 1, 2)) if terms.errors else rng.choice((1, 2, 2, 3))
    count = min(wanted, len(pool))
    groups += [tuple(pool[i::count]) for i in range(count)]
    costs = rng.sample(terms.costs, min(rng.choice((0, 1, 1, 2)), len(terms.costs)))
    return TermPlan(goals=tuple(groups), costs=tuple((c,) for c in costs), constant=rng.random() < 0.4)


def more_terms(task: Task, plan: TermPlan, count: int, rng: random.Random) -> TermPlan:
    """The plan with `count` new terms of any sort."""
    terms = Terms(task, INDENT)
    goals, costs, constant = list(plan.goals), list(plan.costs), plan.constant
    features = [*terms.states, *terms.rates]
    for _ in range(count):
        sort = rng.choice(("goal", "goal", "cost", "constant"))
        if sort == "goal":
            goals.append(tuple(rng.sample(features, max(1, len(features) // 2))))
        elif sort == "cost" and terms.costs:
            costs.append(tuple(rng.sample(terms.costs, max(1, len(terms.costs) // 2))))
        else:
            constant = True
    return replace(plan, goals=tuple(goals), costs=tuple(costs), constant=constant)


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
        parts += [line[end : match.start()], numbers(float(match[0]) * f for f in (0.1, 0.25, 0.5, 1, 2, 4, 10))]
        end = match.end()
    return seq(*parts, line[end:] + "\n")
