"""What the names inside a reward hold, followed through its statements as far as plain assignments allow."""

from __future__ import annotations

import ast

from synth import reward_names as names
from synth.reward_scope import Function, Scope, arguments_of


class Flow:
    """Facts about the names of one function at the statement reached so far."""

    def __init__(self, function: Function, scope: Scope, batched: bool) -> None:
        self.scope = scope
        parameters = {a.arg for a in arguments_of(function)}
        self.views = set(parameters)  # share memory with an input
        self.rows = set(parameters) if batched else set()  # tensors with one value (or more) per row
        self.written_out = {a.arg for a in arguments_of(function) if _is_container(a.annotation)}
        self.counts: set[str] = set()  # the number of rows of the batch

    def remember(self, target: ast.expr, value: ast.expr) -> None:
        """Follow an assignment; statements come in the order of the source."""
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
            for item, part in zip(target.elts, parts, strict=False):
                self.remember(item, part)
        if not isinstance(target, ast.Name):
            return
        facts = (
            (self.views, self.is_view(value)),
            (self.rows, self.is_row_value(value)),
            (self.written_out, self.is_written_out(value)),
            (self.counts, self.counts_rows(value)),
        )
        for known, holds in facts:
            if holds:
                known.add(target.id)
            else:
                known.discard(target.id)

    def is_written_out(self, node: ast.expr) -> bool:
        """Whether a value is a list, tuple, dict or range that the source spells out: no rows of a tensor."""
        if isinstance(node, ast.Name):
            return node.id in self.written_out or node.id in self.scope.constants
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "range":
                return not any(map(self.counts_rows, node.args))
            if node.func.id == "dict":
                return True
            inner = node.func.id in ("enumerate", "zip", "list", "tuple")
            return inner and all(map(self.is_written_out, node.args))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in ("items", "keys", "values")
        return isinstance(node, ast.List | ast.Tuple | ast.Dict | ast.ListComp | ast.DictComp | ast.GeneratorExp)

    def is_view(self, node: ast.expr) -> bool:
        """Whether a value shares memory with an input."""
        if isinstance(node, ast.Name):
            return node.id in self.views
        if isinstance(node, ast.Subscript):
            return self.is_view(node.value)
        if isinstance(node, ast.Attribute):
            return node.attr in ("T", "mT") and self.is_view(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names.VIEWS:
            operands = [node.func.value] if self.scope.path(node.func) is None else node.args[:1]
            return any(map(self.is_view, operands))
        return False

    def is_row_value(self, node: ast.expr) -> bool:
        """Whether a value certainly is a tensor with one value (or more) per row of the batch."""
        if isinstance(node, ast.Name):
            return node.id in self.rows
        if isinstance(node, ast.Compare):
            tests = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
            sides = [node.left, *node.comparators]
            return not isinstance(node.ops[0], tests) and any(map(self.is_row_value, sides))
        if isinstance(node, ast.BinOp):
            return self.is_row_value(node.left) or self.is_row_value(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_row_value(node.operand)
        if isinstance(node, ast.Subscript):
            return self.is_row_value(node.value) and not isinstance(node.slice, ast.Constant)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path = self.scope.path(node.func)
            if node.func.attr in names.MEASURES:
                return False
            operands = list(node.args) if path else [node.func.value, *node.args]
            whole = len(operands) == 1 and not any(k.arg == "dim" for k in node.keywords)
            return any(map(self.is_row_value, operands)) and not (whole and node.func.attr in names.REDUCTIONS)
        return False

    def counts_rows(self, node: ast.expr) -> bool:
        """Whether a value is the number of rows of the batch: x.shape[0], x.size(0), len(x)."""
        if isinstance(node, ast.Name):
            return node.id in self.counts
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            base = node.value.func if isinstance(node.value, ast.Call) else node.value
            return isinstance(base, ast.Attribute) and base.attr in ("shape", "size") and self.is_view(base.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id == "len" and any(map(self.is_view, node.args))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
            first = node.args[0] if node.args else None
            return isinstance(first, ast.Constant) and first.value == 0 and self.is_view(node.func.value)
        return False


def _is_container(annotation: ast.expr | None) -> bool:
    """Whether a helper's parameter is annotated as a list, tuple or dict."""
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    return name in ("List", "list", "Tuple", "tuple", "Dict", "dict", "Sequence", "Mapping")
