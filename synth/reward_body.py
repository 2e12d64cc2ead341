"""The static gate inside one function: statements, expressions, calls and annotations."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable

from sandboxes.base import Failure, RewardProblem
from synth import reward_names as names
from synth.reward_flow import Flow
from synth.reward_scope import (
    ENTRY,
    Function,
    Problems,
    Scope,
    arguments_of,
    bound_names,
    check_annotation,
    is_constant,
    is_string,
    source_of,
    walk,
)

ENOUGH = 100  # problems after which a reward is not looked at any further


class EnoughProblems(Exception):
    """There is more wrong than anybody wants to read."""


class FunctionGate:
    """Checks one function; `problems` collects what is refused."""

    def __init__(self, function: Function, scope: Scope, problems: Problems, is_field: Callable[[str], bool]) -> None:
        self.function, self.scope, self.problems = function, scope, problems
        self.is_field = is_field
        self.bound = {name for name, _ in bound_names(function)}
        self.flow = Flow(function, scope, batched=function.name == ENTRY)

    def refuse(self, node: ast.AST, message: str, kind: Failure = Failure.FORBIDDEN) -> None:
        """Record a problem at a node's line."""
        line = getattr(node, "lineno", self.function.lineno)
        self.problems.append(RewardProblem(kind, message, line))
        if len(self.problems) >= ENOUGH:
            raise EnoughProblems

    def check(self) -> None:
        """Check signature and body."""
        self._signature()
        for name, node in bound_names(self.function):
            # A comprehension binds its names inside only: a builtin bound there would still be itself outside.
            builtin = hasattr(builtins, name) and name not in names.BUILTINS
            if name in self.scope.aliases or name in self.scope.functions or builtin:
                self.refuse(node, f"`{name}` is already the name of something else; choose another name")
            elif name.startswith("__"):
                self.refuse(node, f"`{name}` is not allowed; names must not begin with two underscores")
        for position, statement in enumerate(self.function.body):
            if not (position == 0 and isinstance(statement, ast.Expr) and is_string(statement.value)):
                self.visit(statement)
        if self.function.name == ENTRY:
            self._returns()

    def _signature(self) -> None:
        arguments = self.function.args
        for decorator in self.function.decorator_list:
            if self.scope.path(decorator) != names.SCRIPT:
                self.refuse(
                    decorator, f"the decorator `{source_of(decorator)}` is not allowed; only @torch.jit.script is"
                )
        if getattr(self.function, "type_params", None):
            self.refuse(self.function, "type parameters are not allowed; remove them")
        if arguments.vararg or arguments.kwarg:
            self.refuse(self.function, "`*args` and `**kwargs` are not allowed; name every parameter")
        if arguments.posonlyargs and self.function.name == ENTRY:
            self.refuse(self.function, "parameters are given by name; remove the `/`")
        for default in [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]:
            if not is_constant(default, self.scope):
                self.refuse(default, "a default value must be a number; set it inside the function instead")
        annotations = [a.annotation for a in arguments_of(self.function)]
        for annotation in [*annotations, self.function.returns]:
            if annotation is not None:
                check_annotation(annotation, self.scope, self.problems)

    def _returns(self) -> None:
        found = [n for n in walk(self.function) if isinstance(n, ast.Return)]
        if not found:
            message = f"{ENTRY} returns nothing; end it with `return reward, components`"
            self.refuse(self.function, message, Failure.RETURN)
        for node in found:
            value = node.value
            wrong = value is None or isinstance(value, ast.Dict | ast.Constant | ast.List | ast.BinOp)
            if wrong or (isinstance(value, ast.Tuple) and len(value.elts) != 2):
                self.refuse(node, names.TWO_VALUES, Failure.RETURN)

    def visit(self, node: ast.AST) -> None:
        """Check a node and what is below it."""
        handler = getattr(self, "_on_" + type(node).__name__, None)
        if handler is not None:
            handler(node)
        elif type(node).__name__ in names.PLAIN:
            self._conditions(node)
            parts = (ast.expr, ast.stmt, ast.comprehension)
            self.visit_all(n for n in ast.iter_child_nodes(node) if isinstance(n, parts))
        else:
            kind = type(node).__name__
            known = names.STATEMENTS | names.EXPRESSIONS
            self.refuse(node, known.get(kind, f"`{kind}` is not allowed in a reward"))

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        """Check several nodes."""
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _on_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._target(target)
            self.flow.remember(target, node.value)

    def _on_AnnAssign(self, node: ast.AnnAssign) -> None:
        check_annotation(node.annotation, self.scope, self.problems)
        self._target(node.target)
        if node.value is not None:
            self.visit(node.value)
            self.flow.remember(node.target, node.value)

    def _on_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name) and node.target.id in self.flow.views:
            name, op = node.target.id, _OPERATORS.get(type(node.op), "+")
            self.refuse(
                node,
                f"`{name} {op}= ...` changes an input in place; write `new_name = {name} {op} ...` instead",
            )
        elif isinstance(node.target, ast.Name):
            self._name(node.target)
        else:
            self._target(node.target)

    def _on_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.flow.remember(node.target, node.value)

    def _target(self, node: ast.expr) -> None:
        if isinstance(node, ast.Tuple | ast.List):
            for item in node.elts:
                self._target(item)
        elif isinstance(node, ast.Attribute):
            self.refuse(node, f"`.{node.attr}` cannot be assigned; a reward changes nothing outside itself")
        elif isinstance(node, ast.Subscript):
            if self.flow.is_view(node.value):
                name = source_of(node.value)
                self.refuse(
                    node,
                    f"`{name}[...] = ...` changes an input in place; use torch.where, or {name}.clone() first",
                )
            self.visit_all([node.value, node.slice])
        elif not isinstance(node, ast.Name):
            self.visit(node)

    def _conditions(self, node: ast.AST) -> None:
        tests: list[ast.expr] = []
        if isinstance(node, ast.If | ast.IfExp):
            tests = [node.test]
        elif isinstance(node, ast.BoolOp):
            tests = node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            tests = [node.operand]
        if any(map(self.flow.is_row_value, tests)):
            self.refuse(node, names.ROW_TEST)

    def _on_For(self, node: ast.For) -> None:
        self._iterable(node.iter)
        self._target(node.target)
        self.visit_all([*node.body, *node.orelse])

    def _on_comprehension(self, node: ast.comprehension) -> None:
        if node.is_async:
            self.refuse(node.iter, names.STATEMENTS["AsyncFor"])
        self._iterable(node.iter)
        self._target(node.target)
        self.visit_all(node.ifs)

    def _iterable(self, node: ast.expr) -> None:
        """Loops may run over what is written out in the source, never over the rows of a tensor."""
        self.visit(node)
        if not self.flow.is_written_out(node):
            self.refuse(node, names.BATCH_LOOP)

    def _on_Return(self, node: ast.Return) -> None:
        self.visit_all([node.value])

    def _on_Dict(self, node: ast.Dict) -> None:
        if None in node.keys:
            self.refuse(node, "`**` is not allowed; write the dictionary out")
        self.visit_all([*node.keys, *node.values])

    def _on_Constant(self, node: ast.Constant) -> None:
        if node.value is not None and not isinstance(node.value, bool | int | float | str | type(Ellipsis)):
            self.refuse(node, f"a {type(node.value).__name__} literal is not allowed; use float numbers")

    def _on_JoinedStr(self, node: ast.JoinedStr) -> None:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                plain = isinstance(part.value, ast.Name) and part.conversion == -1 and part.format_spec is None
                if plain:
                    self.visit(part.value)
                else:
                    self.refuse(node, 'an f-string may hold plain names only, such as f"joint_{i}"')

    def _on_Name(self, node: ast.Name) -> None:
        self._name(node)

    def _name(self, node: ast.Name) -> None:
        name, scope = node.id, self.scope
        if name.startswith("__"):
            self.refuse(node, f"`{name}` is not allowed; names must not begin with two underscores")
        elif name in self.bound or name in scope.constants:
            return
        elif name in scope.aliases:
            if scope.aliases[name] not in names.VALUES and not scope.is_foreign(scope.aliases[name]):
                self.refuse(node, f"`{name}` alone is not a value; call the function that you need directly")
        elif name in scope.functions or name in names.BUILTINS:
            self.refuse(node, f"`{name}` is a function; it can only be called, as in `{name}(...)`")
        elif name in names.IMPORTS:
            self.refuse(node, f"`{name}` is not defined; add `{names.IMPORTS[name]}` at the top")
        elif name == "self":
            self.refuse(node, "`self` does not exist here; the state fields come as parameters of the function")
        elif hasattr(builtins, name) or name in names.HINTS:
            self.refuse(node, names.not_allowed(name))
        elif self.is_field(name):
            message = f"the state field `{name}` is not a parameter; add `{name}: Tensor` to the parameters"
            self.refuse(node, message, Failure.UNKNOWN_FIELD)
        else:
            self.refuse(
                node,
                f"`{name}` is not defined; assign it first, or make it a parameter if it is a state field",
            )

    def _on_Attribute(self, node: ast.Attribute) -> None:
        path = self.scope.path(node)
        if path is not None:
            if path in names.FUNCTIONS:
                self.refuse(node, f"`{source_of(node)}` is a function; it can only be called")
            elif path not in names.VALUES and not self.scope.is_foreign(path):
                self.refuse(node, names.not_allowed(path))
            return
        if self._sound(node.value) and node.attr not in names.PROPERTIES:
            method = f"`.{node.attr}` is a method; call it, as in `.{node.attr}(...)`"
            self.refuse(node, method if node.attr in names.METHODS else names.not_allowed("." + node.attr))

    def _sound(self, node: ast.expr) -> bool:
        """Check what an attribute belongs to; one complaint about it is enough."""
        before = len(self.problems)
        self.visit(node)
        return len(self.problems) == before

    def _on_Call(self, node: ast.Call) -> None:
        arguments: list[ast.expr] = list(node.args)
        path = self.scope.path(node.func)
        if path is not None:
            self._torch_call(node, path)
            if path == "torch.jit.annotate" and arguments:
                check_annotation(arguments.pop(0), self.scope, self.problems)
        elif isinstance(node.func, ast.Name):
            self._plain_call(node, node.func.id)
        elif isinstance(node.func, ast.Attribute):
            if self._sound(node.func.value) and node.func.attr not in names.METHODS:
                self.refuse(node.func, names.not_allowed("." + node.func.attr, "()"))
        else:
            self.refuse(node, "only functions and tensor methods can be called, by their names")
            self.visit(node.func)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(keyword.value, "`**` is not allowed; write the arguments out")
            elif keyword.arg in names.REFUSED_KEYWORDS or keyword.arg.startswith("__"):
                self.refuse(keyword.value, f"the argument `{keyword.arg}=` is not allowed; remove it")
        self.visit_all([*arguments, *(k.value for k in node.keywords)])

    def _torch_call(self, node: ast.Call, path: str) -> None:
        if self.scope.is_foreign(path):
            return  # its import has been refused already
        if path not in names.FUNCTIONS:
            self.refuse(node, names.not_allowed(path, "()", shown=source_of(node.func)))
        elif len(node.args) > names.POSITIONAL_LIMIT.get(path, len(node.args)):
            self.refuse(node, f"`{source_of(node.func)}` must not work in place; give its options by keyword")

    def _plain_call(self, node: ast.Call, name: str) -> None:
        if name in self.bound or name in self.scope.constants:
            self.refuse(node, f"`{name}` is a value, not a function; call functions by their own names")
        elif name in names.BUILTINS:
            if name in names.ROW_BREAKERS and any(map(self.flow.is_row_value, node.args)):
                self.refuse(node, names.ROW_TEST)
            if any(k.arg == "key" for k in node.keywords) and name != "dict":
                self.refuse(node, "the argument `key=` is not allowed; use torch functions")
        elif name not in self.scope.functions:
            if hasattr(builtins, name) or name in names.HINTS or name in names.IMPORTS:
                self.refuse(node, names.not_allowed(name, "()"))
            else:
                self.refuse(node, f"the function `{name}` is not defined; define it in this file or use torch")


_OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.BitOr: "|",
    ast.BitAnd: "&",
}
