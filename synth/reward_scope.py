"""Names and syntax of a reward's source, as the gate and the normal form both read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from synth import reward_names as names

ENTRY = "compute_reward"

Function = ast.FunctionDef


@dataclass
class Scope:
    """What the names of a reward mean at module level."""

    aliases: dict[str, str] = field(default_factory=dict)  # local name -> dotted path of what was imported
    functions: dict[str, Function] = field(default_factory=dict)
    constants: dict[str, None] = field(default_factory=dict)  # in the order of the source

    def path(self, node: ast.expr) -> str | None:
        """The dotted path of `torch.x`, `F.y` or an imported name; None for anything not rooted in an import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases:
            return None
        return ".".join([self.aliases[node.id], *reversed(parts)])


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
