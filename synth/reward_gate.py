"""The static gate: an allow-list over the syntax tree of a reward.

It exists to give a model or a person exact errors before anything runs, and to keep rewards inside one simple
form: pure, batched tensor arithmetic. It is not called security; confinement of the worker process is.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from typing import Protocol

from sandboxes.base import Failure, RewardProblem
from synth import reward_names as names
from synth.reward_body import EnoughProblems, FunctionGate
from synth.reward_scope import (
    ENTRY,
    Problems,
    Scope,
    arguments_of,
    check_annotation,
    is_constant,
    is_string,
    read_scope,
)


def check_module(tree: ast.Module, is_field: Callable[[str], bool]) -> Problems:
    """Everything that the allow-list refuses in a module, in no particular order."""
    scope = read_scope(tree)
    problems: Problems = []
    for position, node in enumerate(tree.body):
        _check_top(node, position, scope, problems)
    entry = scope.functions.get(ENTRY)
    if entry is None:
        problems.append(_no_entry(scope))
    elif not arguments_of(entry):
        message = f"{ENTRY} has no parameters; name the state fields that it reads as its parameters"
        problems.append(RewardProblem(Failure.SYNTAX, message, entry.lineno))
    with contextlib.suppress(EnoughProblems):
        for function in (n for n in tree.body if isinstance(n, ast.FunctionDef)):
            FunctionGate(function, scope, problems, is_field).check()
    return problems


def _no_entry(scope: Scope) -> RewardProblem:
    if not scope.functions:
        return RewardProblem(Failure.SYNTAX, f"there is no function; define `def {ENTRY}(...)`")
    name, function = next(reversed(scope.functions.items()))
    return RewardProblem(
        Failure.SYNTAX, f"there is no function named {ENTRY}; rename `{name}` to `{ENTRY}`", function.lineno
    )


def _check_top(node: ast.stmt, position: int, scope: Scope, problems: Problems) -> None:
    def refuse(message: str, kind: Failure = Failure.FORBIDDEN) -> None:
        problems.append(RewardProblem(kind, message, node.lineno))

    if isinstance(node, ast.Import):
        for item in node.names:
            if item.name not in names.MODULES:
                refuse(_import_message(item.name))
    elif isinstance(node, ast.ImportFrom):
        _check_import_from(node, refuse)
    elif isinstance(node, ast.FunctionDef):
        if scope.functions[node.name] is not node:
            refuse(f"`{node.name}` is defined twice; keep one definition", Failure.SYNTAX)
        if node.name in scope.aliases or node.name in names.BUILTINS or node.name.startswith("__"):
            refuse(f"a function must not be called `{node.name}`; choose another name")
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        _check_constant(node, scope, refuse, problems)
    elif not (isinstance(node, ast.Expr) and is_string(node.value) and position == 0):
        default = "only imports, functions and constants may stand at module level; move it into a function"
        refuse(names.STATEMENTS.get(type(node).__name__, default))


class Refuse(Protocol):
    """Signature of the callbacks that record a problem."""

    def __call__(self, message: str, kind: Failure = Failure.FORBIDDEN) -> None:
        """Record `message`."""


def _import_message(name: str) -> str:
    hint = "; use torch instead of NumPy" if name.split(".")[0] == "numpy" else ""
    allowed = "only torch, torch.nn.functional, math and typing may be imported"
    return f"`import {name}` is not allowed: {allowed}{hint}"


def _check_import_from(node: ast.ImportFrom, refuse: Refuse) -> None:
    module = node.module or ""
    if node.level or (module not in names.MODULES and module != "__future__"):
        refuse(_import_message("." * node.level + module))
        return
    for item in node.names:
        path = f"{module}.{item.name}"
        if module == "__future__":
            good = item.name in names.FUTURE and item.asname is None
        else:
            good = path in names.MODULES | names.TYPES | names.FUNCTIONS | names.VALUES | {names.SCRIPT}
        if item.name == "*":
            refuse(f"`from {module} import *` is not allowed; import each name that you need")
        elif not good:
            refuse(names.not_allowed(path, shown=f"from {module} import {item.name}"))


def _check_constant(node: ast.Assign | ast.AnnAssign, scope: Scope, refuse: Refuse, problems: Problems) -> None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if not isinstance(target, ast.Name):
            refuse("only simple names may be assigned at module level; move it into a function")
        elif target.id in scope.aliases or target.id in scope.functions or target.id.startswith("__"):
            refuse(f"`{target.id}` cannot be assigned; choose another name")
    if isinstance(node, ast.AnnAssign):
        check_annotation(node.annotation, scope, problems)
    if node.value is None or not is_constant(node.value, scope):
        refuse("a module-level value must be a number, a string or a tuple of them; move it into a function")
