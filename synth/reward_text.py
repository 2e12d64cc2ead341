"""Reads and changes a reward's text: code in a model's answer, numeric constants, components.

A *constant* is a numeric literal that scales, shifts or bounds something. The rule:

- every float literal counts, in function bodies, in default values and at module level;
- an integer literal counts only as a direct operand of `+ - * /` or `< <= > >=`;
- a minus sign directly before a literal belongs to it;
- never counted: zero (it has no scale), magnitudes under 1e-5 (guards against division by zero), anything inside an
  index, exponents, arguments that hold nothing but literals of functions whose arguments are shapes, orders or
  dimensions (`norm`, `view`, `range`, ...), and the keyword arguments `dim`, `p`, `ord` and the like.
"""

from __future__ import annotations

import ast
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from synth.reward_scope import ENTRY, Function, walk

GUARD = 1e-5
_STRUCTURAL_CALLS = frozenset(
    "pow norm vector_norm range view reshape expand repeat tile permute transpose squeeze unsqueeze size flatten "
    "narrow select roll flip movedim swapaxes zeros ones eye quantile topk kthvalue round".split()
)
_STRUCTURAL_KEYWORDS = frozenset("dim dims keepdim p ord dtype size axis correction decimals eps q k".split())
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass(frozen=True)
class Constant:
    """A numeric literal of a reward: its value, and its place (`line` from 1, `column` in characters from 0)."""

    value: float
    line: int
    column: int
    text: str
    is_integer: bool = False


def find_constants(tree: ast.Module, source: str) -> tuple[Constant, ...]:
    """All constants in the order of the source; the rule is stated at the top of this module."""
    lines = source_lines(source)
    found = []
    for node in _tunable(tree, False):
        value = literal(node)
        if value is not None and abs(value) >= GUARD and math.isfinite(value):
            start, end = _span(node, lines)
            text = "".join(lines)[start:end]
            column = start - sum(len(line) for line in lines[: node.lineno - 1])
            found.append(Constant(float(value), node.lineno, column, text, isinstance(value, int)))
    return tuple(sorted(found, key=lambda c: (c.line, c.column)))


def replace_constants(source: str, constants: Sequence[Constant], values: Sequence[float]) -> str:
    """The source with each constant replaced by the value of the same position; equal values keep their text.

    Raises:
        ValueError: another number of values than constants, or a value that is not finite.
    """
    if len(values) != len(constants):
        raise ValueError(f"{len(values)} values for {len(constants)} constants")
    starts = [0]
    for line in source_lines(source):
        starts.append(starts[-1] + len(line))
    parts, position = [], 0
    for constant, value in zip(constants, values, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"a constant must be finite, not {value}")
        start = starts[constant.line - 1] + constant.column
        parts += [source[position:start], _literal_text(constant, float(value), source[:start])]
        position = start + len(constant.text)
    return "".join([*parts, source[position:]])


def _literal_text(constant: Constant, value: float, before: str) -> str:
    if value == constant.value:
        return constant.text
    text = (
        str(int(value)) if constant.is_integer and value.is_integer() and abs(value) < 1e15 else repr(value)
    )
    signed = constant.text.startswith("-")
    if text.startswith("-") and not signed:
        return f"({text})"  # a sign may not stand everywhere a bare number may: 2.0 ** x
    if signed and not text.startswith("-") and before[-1:].isidentifier():
        return " " + text  # `return-0.1` must not become `return0.1`
    return text


def literal(node: ast.AST) -> int | float | None:
    """The value of a numeric literal, or of a minus sign directly before one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal(node.operand) if isinstance(node.operand, ast.Constant) else None
        return None if inner is None else -inner
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    ):
        return node.value
    return None


def _tunable(node: ast.AST, operand: bool) -> Iterator[ast.expr]:
    """Literals that count; `operand`: whether the node is a direct operand, where integers count too."""
    value = literal(node)
    if value is not None:
        assert isinstance(node, ast.expr)
        if operand or isinstance(value, float):
            yield node
        return
    arithmetic = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, _ARITHMETIC)
    arithmetic = arithmetic or (
        isinstance(node, ast.Compare) and all(isinstance(o, _ORDER) for o in node.ops)
    )
    for child in _children(node):
        yield from _tunable(child, arithmetic)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node in which constants may stand."""
    if isinstance(node, ast.Subscript):
        yield node.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        yield node.left
    elif isinstance(node, ast.Call):
        yield node.func
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        structural = name in _STRUCTURAL_CALLS
        yield from (a for a in node.args if not (structural and _only_literals(a)))
        yield from (k.value for k in node.keywords if k.arg not in _STRUCTURAL_KEYWORDS)
    elif isinstance(node, ast.AnnAssign):
        yield from (n for n in (node.target, node.value) if n is not None)
    elif isinstance(node, ast.FunctionDef):
        yield from (d for d in [*node.args.defaults, *node.args.kw_defaults] if d is not None)
        yield from node.body
    elif not isinstance(node, ast.JoinedStr):
        yield from ast.iter_child_nodes(node)


def _only_literals(node: ast.AST) -> bool:
    return not any(isinstance(n, ast.Name | ast.Call) for n in walk(node))


def source_lines(source: str) -> list[str]:
    """Lines as Python's parser counts them (form feeds and Unicode separators end no line), ends kept."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", source)


def _span(node: ast.expr, lines: list[str]) -> tuple[int, int]:
    """First and last offset of a node in characters; the parser counts columns in bytes of UTF-8."""

    def offset(line: int, column: int) -> int:
        before = sum(len(text) for text in lines[: line - 1])
        return before + len(lines[line - 1].encode("utf-8")[:column].decode("utf-8"))

    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)


def component_names(entry: Function) -> tuple[str, ...]:
    """Names of the components in the order of first mention; empty when a name is not written out."""
    found = _components(entry)
    return () if found is None else tuple(found)


def component_expressions(entry: Function) -> dict[str, ast.expr]:
    """The expression behind each component, where it is plain: one assignment, or written into the dict itself."""
    assigned: dict[str, list[ast.expr | None]] = {}
    for node in walk(entry):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    assigned.setdefault(target.id, []).append(
                        None if isinstance(node, ast.AugAssign) else node.value
                    )
    found = {}
    for name, value in (_components(entry) or {}).items():
        if isinstance(value, ast.Name):
            values = assigned.get(value.id, [])
            value = values[0] if len(values) == 1 else None
        if value is not None:
            found[name] = value
    return found


def _components(entry: Function) -> dict[str, ast.expr | None] | None:
    """Component -> its value (None where assigned more than once); None when the names are not visible."""
    found: dict[str, ast.expr | None] = {}
    for node in walk(entry):
        if not isinstance(node, ast.Return):
            continue
        if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != 2:
            return None
        second = node.value.elts[1]
        sources = _dict_writes(entry, second.id) if isinstance(second, ast.Name) else [second]
        for source in sources:
            items = _dict_items(source)
            if items is None:
                return None
            for name, value in items:
                found[name] = value if name not in found or found[name] is value else None
    return found


def _dict_writes(entry: Function, name: str) -> Iterator[ast.AST]:
    """Everything in a function that writes into the dict called `name`."""
    for node in walk(entry):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id == name and node.value is not None:
                    yield node.value
                elif _is_named(getattr(target, "value", None), name) and isinstance(target, ast.Subscript):
                    yield ast.Dict([target.slice], [node.value])  # type: ignore[list-item]
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update"
        ):
            if _is_named(node.func.value, name):
                yield ast.Call(ast.Name("dict"), node.args, node.keywords)


def _is_named(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _dict_items(node: ast.AST) -> list[tuple[str, ast.expr | None]] | None:
    """Names and values of `{...}`, `dict(...)` or `torch.jit.annotate(type, {...})`; None when not written out."""
    if isinstance(node, ast.Dict):
        keys = [k.value if isinstance(k, ast.Constant) else None for k in node.keys]
        names = [k for k in keys if isinstance(k, str)]
        return list(zip(names, node.values, strict=True)) if len(names) == len(keys) else None
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "annotate" and len(node.args) == 2:
            return _dict_items(node.args[1])
        if isinstance(node.func, ast.Name) and node.func.id == "dict" and len(node.args) <= 1:
            first = _dict_items(node.args[0]) if node.args else []
            named: list[tuple[str, ast.expr | None]] = [(k.arg, k.value) for k in node.keywords if k.arg]
            return None if first is None else first + named
    return None


_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_START = re.compile(r"^[ \t]*(?:import |from |@|def |async def )", re.MULTILINE)
_ENTRY = re.compile(rf"\bdef[ \t]+{ENTRY}\b")


def extract_code(answer: str) -> str | None:
    """The reward's source from a model's answer; None when it holds no code.

    Prefers the last fenced block that defines `compute_reward`, then the last block that defines any function, then
    the last block; without fences, the text from the first import or definition on.
    """
    text = answer.replace("\r\n", "\n").replace("\r", "\n")
    blocks = [b for b in _fenced(text) if b.strip()]
    for wanted in (_ENTRY, re.compile(r"\bdef[ \t]+\w"), re.compile("")):
        chosen = [b for b in blocks if wanted.search(b)]
        if chosen and (wanted.pattern or not _ENTRY.search(text)):
            return _tidy(chosen[-1])
    start = _START.search(text)
    if start is None or "def " not in text:
        return _tidy(blocks[-1]) if blocks else None
    return _tidy(text[start.start() :])


def _fenced(text: str) -> list[str]:
    """Contents of the fenced blocks; a block that is not closed runs to the end."""
    blocks: list[str] = []
    opened: tuple[str, int] | None = None
    for match in _FENCE.finditer(text):
        mark = match[1]
        if opened is None:
            opened = mark, match.end() + 1
        elif mark[0] == opened[0][0] and len(mark) >= len(opened[0]) and match[0].strip() == mark:
            blocks.append(text[opened[1] : match.start()])
            opened = None
    if opened is not None:
        blocks.append(text[opened[1] :])
    return blocks


def _tidy(code: str) -> str:
    return textwrap.dedent(code.expandtabs(4)).strip() + "\n"
