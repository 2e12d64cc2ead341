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

from synth import reward_names as names
from synth.reward_scope import ENTRY, Function, walk

GUARD = 1e-5
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
    lines = _source_lines(source)
    found = []
    for node in _tunable(tree, False):
        value = _literal(node)
        if value is not None and abs(value) >= GUARD:
            column, text = _place(node, lines)
            found.append(Constant(float(value), node.lineno, column, text, isinstance(value, int)))
    return tuple(sorted(found, key=lambda c: (c.line, c.column)))


def _place(node: ast.expr, lines: list[str]) -> tuple[int, str]:
    """A node's column in characters (the parser counts bytes of UTF-8), and its text."""
    last = node.end_lineno or node.lineno
    parts = [line.encode("utf-8") for line in lines[node.lineno - 1 : last]]
    before = parts[0][: node.col_offset]
    parts[-1] = parts[-1][: node.end_col_offset]
    return len(before.decode("utf-8")), b"".join(parts)[len(before) :].decode("utf-8")


def replace_constants(source: str, constants: Sequence[Constant], values: Sequence[float]) -> str:
    """The source with each constant replaced by the value of the same position; equal values keep their text.

    Raises:
        ValueError: another number of values than constants, or a value that is not finite.
    """
    if len(values) != len(constants):
        raise ValueError(f"{len(values)} values for {len(constants)} constants")
    starts = [0]
    for line in _source_lines(source):
        starts.append(starts[-1] + len(line))
    parts, position = [], 0
    for constant, value in zip(constants, values, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"a constant must be finite, not {value}")
        start = starts[constant.line - 1] + constant.column
        parts += [source[position:start], _literal_text(constant, float(value), source[start - 1 : start])]
        position = start + len(constant.text)
    return "".join([*parts, source[position:]])


def _literal_text(constant: Constant, value: float, before: str) -> str:
    if value == constant.value:
        return constant.text
    text = str(int(value)) if constant.is_integer and value.is_integer() and abs(value) < 1e15 else repr(value)
    if text.startswith("-") and not constant.text.startswith("-"):
        return f"({text})"  # a sign may not stand everywhere a bare number may: 2.0 ** x
    if not text.startswith("-") and before.isidentifier():
        return " " + text  # `return-0.1` must not become `return0.1`
    return text


def _literal(node: ast.AST) -> int | float | None:
    """The value of a numeric literal, or of a minus sign directly before one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand) if isinstance(node.operand, ast.Constant) else None
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return None


def _tunable(node: ast.AST, operand: bool) -> Iterator[ast.expr]:
    """Literals that count; `operand`: whether the node is a direct operand, where integers count too."""
    value = _literal(node)
    if value is not None:
        assert isinstance(node, ast.expr)
        if operand or isinstance(value, float):
            yield node
        return
    arithmetic = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, _ARITHMETIC)
    arithmetic = arithmetic or (isinstance(node, ast.Compare) and all(isinstance(o, _ORDER) for o in node.ops))
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
        structural = name in names.STRUCTURAL_CALLS
        yield from (a for a in node.args if not (structural and _only_literals(a)))
        yield from (k.value for k in node.keywords if k.arg not in names.STRUCTURAL_KEYWORDS)
    elif isinstance(node, ast.AnnAssign):
        yield from (n for n in (node.target, node.value) if n is not None)
    elif isinstance(node, ast.FunctionDef):
        yield from (d for d in [*node.args.defaults, *node.args.kw_defaults] if d is not None)
        yield from node.body
    elif not isinstance(node, ast.JoinedStr):
        yield from ast.iter_child_nodes(node)


def _only_literals(node: ast.AST) -> bool:
    return not any(isinstance(n, ast.Name | ast.Call) for n in walk(node))


def _source_lines(source: str) -> list[str]:
    """Lines as the parser counts them, ends kept (`str.splitlines` also ends lines at form feeds and the like)."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", source)


def component_names(entry: Function) -> tuple[str, ...]:
    """Names of the components in the order of first mention; empty when a name is not written out."""
    found = _components(entry)
    return () if found is None else tuple(found)


def component_expressions(entry: Function) -> dict[str, ast.expr]:
    """The expression behind each component, where it is plain: one assignment, or written into the dict itself."""
    assigned: dict[str, list[ast.expr | None]] = {}
    for target, value in _assignments(entry):
        if isinstance(target, ast.Name):
            assigned.setdefault(target.id, []).append(value)
    found = {}
    for name, expression in (_components(entry) or {}).items():
        if isinstance(expression, ast.Name) and expression.id in assigned:
            values = assigned[expression.id]
            expression = values[0] if len(values) == 1 else None
        if expression is not None:
            found[name] = expression
    return found


_Items = list[tuple[str, ast.expr | None]]


def _assignments(entry: Function) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Targets with what is assigned to them; None where the value also depends on the old one."""
    for node in walk(entry):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.AugAssign):
            yield node.target, None


def _components(entry: Function) -> dict[str, ast.expr | None] | None:
    """Component -> its value (None where it is written more than once); None when the names are not visible."""
    found: dict[str, ast.expr | None] = {}
    for node in walk(entry):
        if not isinstance(node, ast.Return):
            continue
        if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != 2:
            return None
        second = node.value.elts[1]
        writes = _dict_writes(entry, second.id) if isinstance(second, ast.Name) else [_dict_items(second)]
        for items in writes:
            if items is None:
                return None
            for name, value in items:
                found[name] = value if found.get(name, value) is value else None
    return found


def _dict_writes(entry: Function, name: str) -> Iterator[_Items | None]:
    """What is written into the dict called `name`; None for names that are not written out."""
    for target, value in _assignments(entry):
        if isinstance(target, ast.Name) and target.id == name and value is not None:
            yield _dict_items(value)
        elif isinstance(target, ast.Subscript) and _is_named(target.value, name):
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            yield [(key, value)] if isinstance(key, str) else None
    for node in walk(entry):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            yield from [_call_items(node)] if _is_named(node.func.value, name) else []


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _dict_items(node: ast.AST) -> _Items | None:
    """Names and values of `{...}`, `dict(...)` or `torch.jit.annotate(type, {...})`; None when not written out."""
    if isinstance(node, ast.Dict):
        keys = [k.value if isinstance(k, ast.Constant) else None for k in node.keys]
        written = [k for k in keys if isinstance(k, str)]
        return list(zip(written, node.values, strict=True)) if len(written) == len(keys) else None
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "annotate" and len(node.args) == 2:
            return _dict_items(node.args[1])
        if isinstance(node.func, ast.Name) and node.func.id == "dict":
            return _call_items(node)
    return None


def _call_items(node: ast.Call) -> _Items | None:
    """Names and values given to `dict(...)` or `.update(...)`."""
    first = _dict_items(node.args[0]) if node.args else []
    return None if first is None else first + [(k.arg, k.value) for k in node.keywords if k.arg]


_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_START = re.compile(
    r"^[ \t]*(?:import +[\w.]+(?: +as +\w+)? *$|from +[\w.]+ +import |@[\w.]+ *$|(?:async +)?def +\w+ *\()",
    re.MULTILINE,
)
_CODE_LINE = re.compile(r"import |from [\w.]+ import |@|def |async |#|[)\]}]|[A-Za-z_]\w*(?:: *[\w.]+)? *=")
_ENTRY = re.compile(rf"\bdef[ \t]+{ENTRY}\b")
_DEFINITION = re.compile(r"\bdef[ \t]+\w")


def extract_code(answer: str) -> str | None:
    """The reward's source from a model's answer; None when it holds no code.

    Takes the last fenced block that defines `compute_reward`, or the bare text when only that defines it; else the
    last block that defines any function, the last block, or the bare text from the first import or definition on.
    """
    text = answer.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    blocks = [b for b in _fenced(text) if b.strip()]
    entries = [b for b in blocks if _ENTRY.search(b)]
    bare = _bare(text)
    if entries:
        return _tidy(entries[-1])
    if bare is not None and (not blocks or _ENTRY.search(bare)):
        return _tidy(bare)
    return _tidy(([b for b in blocks if _DEFINITION.search(b)] or blocks)[-1]) if blocks else None


def _fenced(text: str) -> list[str]:
    """Contents of the fenced blocks; a block that is not closed runs to the next opening or to the end."""
    blocks: list[str] = []
    mark, start = "", 0
    for match in _FENCE.finditer(text):
        same = mark and match[1][0] == mark[0] and len(match[1]) >= len(mark)
        if mark and not same:
            continue
        if mark:
            blocks.append(text[start : match.start()])
        opens = not mark or match[2].strip() != ""
        mark, start = (match[1], match.end() + 1) if opens else ("", 0)
    if mark:
        blocks.append(text[start:])
    return blocks


def _bare(text: str) -> str | None:
    """Code without fences: from the first import or definition to the first line of prose after a definition."""
    start = _START.search(text)
    if start is None:
        return None
    lines = textwrap.dedent(text[start.start() :]).split("\n")
    defined = False
    for number, line in enumerate(lines):
        if defined and line[:1].strip() and not _CODE_LINE.match(line):
            return "\n".join(lines[:number])
        defined = defined or _DEFINITION.match(line) is not None
    return "\n".join(lines) if defined else None


def _tidy(code: str) -> str:
    return textwrap.dedent(code).strip() + "\n"
