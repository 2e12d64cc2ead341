"""Names, constants and types in a reward's source, as the gate and the normal form both read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandboxes.base import Failure, RewardProblem
from synth import reward_names as names

ENTRY = "compute_reward"

Function = ast.FunctionDef
Problems = list[RewardProblem]

_ANNOTATION_LIMIT = 120  # characters of an annotation that is given as a string
_ROOTS = frozenset({"torch", "math", "typing", "__future__"})


@dataclass
class Scope:
    """What the names of a reward mean at module level."""

    aliases: dict[str, str] = field(default_factory=dict)  # local name -> dotted path of what was imported
    functions: dict[str, Function] = field(default_factory=dict)
    constants: dict[str, None] = field(default_factory=dict)  # in the order of the source

    def path(self, node: ast.expr) -> str | None:
        """The dotted path of `torch.x`, `F.y` or an imported name; None for what is not rooted in an import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases:
            return None
        return ".".join([self.aliases[node.id], *reversed(parts)])

    @staticmethod
    def is_foreign(path: str) -> bool:
        """Whether a path comes from an import that the gate refuses as a whole."""
        return path.split(".")[0] not in _ROOTS


def read_scope(tree: ast.Module) -> Scope:
    """Collect imports, functions and constants of a module; judges nothing."""
    scope = Scope()
    for node in tree.body:
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.asname:
                    scope.aliases[item.asname] = item.name
                else:
                    scope.aliases[item.name.split(".")[0]] = item.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                scope.aliases[item.asname or item.name] = f"{node.module or ''}.{item.name}"
        elif isinstance(node, ast.FunctionDef):
            scope.functions.setdefault(node.name, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            scope.constants.update({t.id: None for t in targets if isinstance(t, ast.Name)})
    return scope


def bound_names(function: Function) -> Iterator[tuple[str, ast.AST]]:
    """Every name that a function binds (parameters, targets), in the order of the source, with its node."""
    for argument in arguments_of(function):
        yield argument.arg, argument
    for statement in function.body:
        for node in walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, node


def arguments_of(function: Function) -> list[ast.arg]:
    """All parameters of a function, starred ones left out."""
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Depth first, in the order of the source (`ast.walk` goes breadth first)."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walk(child)


def is_constant(node: ast.expr, scope: Scope) -> bool:
    """Numbers, strings, None, tuples of them, and arithmetic on them."""
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool | int | float | str)
    if isinstance(node, ast.UnaryOp):
        return is_constant(node.operand, scope)
    if isinstance(node, ast.BinOp):
        return is_constant(node.left, scope) and is_constant(node.right, scope)
    if isinstance(node, ast.Tuple):
        return all(is_constant(item, scope) for item in node.elts)
    return scope.path(node) in names.VALUES


def is_string(node: ast.AST) -> bool:
    """Whether a node is a string literal, such as a docstring."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def source_of(node: ast.AST) -> str:
    """A node's source for a message, cut to a readable length."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


def check_annotation(node: ast.expr, scope: Scope, problems: Problems) -> None:
    """Annotations are code too: only types by name, subscripts and unions of them are allowed."""

    def refuse(message: str) -> None:
        problems.append(RewardProblem(Failure.FORBIDDEN, message, node.lineno))

    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            inner = _string_annotation(node)
            if inner is None:
                refuse(names.NOT_A_TYPE)
            else:
                check_annotation(inner, scope, problems)
        elif node.value is not None and node.value is not Ellipsis:
            refuse(names.NOT_A_TYPE)
    elif isinstance(node, ast.Subscript):
        check_annotation(node.value, scope, problems)
        check_annotation(node.slice, scope, problems)
    elif isinstance(node, ast.Tuple | ast.List):
        for item in node.elts:
            check_annotation(item, scope, problems)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        check_annotation(node.left, scope, problems)
        check_annotation(node.right, scope, problems)
    elif isinstance(node, ast.Name) and node.id in names.BUILTIN_TYPES and node.id not in scope.aliases:
        return
    elif scope.path(node) not in names.TYPES:
        text = source_of(node)
        hint = {"Tensor": "from torch import Tensor", "torch.Tensor": "import torch"}.get(text)
        if hint is None and "typing." + text in names.TYPING:
            hint = f"from typing import {text}"
        if hint and not isinstance(node, ast.Call):
            refuse(f"`{text}` is not defined; add `{hint}` at the top")
        else:
            refuse(f"`{text}` is not allowed as an annotation; write Tensor, float or leave it out")


def _string_annotation(node: ast.Constant) -> ast.expr | None:
    text = str(node.value).strip()
    if len(text) > _ANNOTATION_LIMIT:
        return None
    try:
        return ast.copy_location(ast.parse(text, mode="eval").body, node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
