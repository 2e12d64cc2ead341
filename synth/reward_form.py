"""The normal form of a reward: equal for sources that differ in formatting and local names only."""

from __future__ import annotations

import ast

from synth.reward_scope import ENTRY, Function, Scope, arguments_of, bound_names, is_string, read_scope


def normalise(tree: ast.Module) -> str:
    """Source without imports, comments, docstrings, annotations and decorators, and with canonical names.

    Locals become `_v0, _v1, ...` in the order in which they are bound, helpers `_f0, ...` and module constants
    `_c0, ...`; what is imported is written by its full path. Parameters of the entry (state fields) and strings
    (component names) stay. The tree is changed on the way: give a fresh one.
    """
    scope = read_scope(tree)
    body = [n for n in tree.body if not isinstance(n, ast.Import | ast.ImportFrom)]
    renaming = _Renaming(scope)
    module = ast.Module([renaming.visit(n) for n in body if not _is_docstring(n)], [])
    return ast.unparse(ast.fix_missing_locations(module))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and is_string(node.value)


def _local_names(function: Function) -> dict[str, str]:
    kept = {a.arg for a in arguments_of(function)} if function.name == ENTRY else set()
    found: dict[str, str] = {}
    for name, _ in bound_names(function):
        if name not in kept and name not in found:
            found[name] = f"_v{len(found)}"
    return {**found, **{name: name for name in kept}}


class _Renaming(ast.NodeTransformer):
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        helpers = [name for name in scope.functions if name != ENTRY]
        self.helpers = {name: f"_f{index}" for index, name in enumerate(helpers)} | {ENTRY: ENTRY}
        self.constants = {name: f"_c{index}" for index, name in enumerate(scope.constants)}
        self.parameters = {name: _local_names(function) for name, function in scope.functions.items()}
        self.locals: dict[str, str] = {}

    def visit_FunctionDef(self, node: Function) -> Function:
        self.locals = self.parameters[node.name]
        node.name = self.helpers[node.name]
        node.decorator_list, node.returns = [], None
        node.body = [n for n in node.body if not _is_docstring(n)] or [ast.Pass()]
        self.generic_visit(node)
        self.locals = {}
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.locals.get(node.arg, node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.Pass()
        return ast.Assign([self.visit(node.target)], self.visit(node.value))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        for table in (self.locals, self.constants, self.helpers):
            if node.id in table:
                return ast.Name(table[node.id], node.ctx)
        if node.id in self.scope.aliases:
            return ast.parse(self.scope.aliases[node.id], mode="eval").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if isinstance(node.func, ast.Name) and node.func.id in self.parameters and node.func.id not in self.locals:
            names = self.parameters[node.func.id]
            for keyword in node.keywords:
                keyword.arg = names.get(keyword.arg or "", keyword.arg)
        self.generic_visit(node)
        return node
