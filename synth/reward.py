"""Rewards as source code: parsing, the static gate, and what can be read from or changed in the text.

Nothing here imports torch or runs a reward.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sandboxes.base import Failure, RewardProblem
from synth.errors import RewardError
from synth.reward_form import normalise
from synth.reward_gate import check_module
from synth.reward_scope import ENTRY, Function, arguments_of, read_scope
from synth.reward_text import (
    Constant,
    component_expressions,
    component_names,
    extract_code,
    find_constants,
    replace_constants,
)
from synth.task import Parameter, Task, resolve_parameter

MAX_CHARACTERS = 64 * 1024
MAX_LINES = 1000
MAX_NODES = 10_000
MAX_DEPTH = 60  # keeps every recursive pass over the tree far from Python's recursion limit
MAX_NUMBER = 1e30  # float32 ends at 3.4e38
MAX_PARAMETERS = 100
MAX_PROBLEMS = 10
MAX_MESSAGE = 300

_SEVERITY = (Failure.NO_CODE, Failure.SYNTAX, Failure.FORBIDDEN, Failure.UNKNOWN_FIELD, Failure.RETURN)


@dataclass(frozen=True)
class RewardCode:
    """A reward that passed the static gate: its source, and its parameters resolved against a task."""

    source: str
    parameters: tuple[Parameter, ...]

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the source; not to be changed."""
        return _parse(self.source)

    @cached_property
    def component_names(self) -> tuple[str, ...]:
        """Names of the components as far as the source shows them; empty when it does not."""
        return component_names(self._entry)

    @cached_property
    def normalised(self) -> str:
        """The source without comments, docstrings, annotations and imports, local names replaced by numbers.

        Equal for two rewards that differ only in formatting, local names or the way torch is imported.
        """
        return normalise(_parse(self.source))

    @cached_property
    def digest(self) -> str:
        """First 12 hexadecimal digits of the SHA-256 of the normalised source."""
        return hashlib.sha256(self.normalised.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def constants(self) -> tuple[Constant, ...]:
        """The numeric literals that scale, shift or bound something; `synth.reward_text` states the rule."""
        return find_constants(self.tree, self.source)

    def with_constants(self, values: Sequence[float]) -> RewardCode:
        """The same source with its constants replaced in place, in the order of `constants()`.

        Raises:
            ValueError: another number of values than constants, or a value that is not finite.
        """
        return RewardCode(replace_constants(self.source, self.constants(), values), self.parameters)

    def component_sources(self) -> dict[str, str]:
        """Source of each component's expression, for components that are assigned in a simple way."""
        found = component_expressions(self._entry)
        segments = {name: ast.get_source_segment(self.source, node) for name, node in found.items()}
        return {name: text for name, text in segments.items() if text}

    @property
    def _entry(self) -> Function:
        return read_scope(self.tree).functions[ENTRY]

    @classmethod
    def load(cls, path_or_text: str | Path, task: Task) -> RewardCode:
        """A reward from a file, or from its text when it is no file's name.

        Raises:
            RewardError: the file cannot be read, or the gate refuses the reward; one line.
        """
        where, text = "reward", str(path_or_text)
        if isinstance(path_or_text, Path) or not ("\n" in text or "def " in text):
            where = text[:200]
            try:
                text = Path(path_or_text).read_text(encoding="utf-8-sig")
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "not valid UTF-8 text"
                raise RewardError(f"{where} cannot be read: {reason}") from error
        parsed = parse_reward(text, task)
        if parsed.code is None:
            first, more = parsed.problems[0], len(parsed.problems) - 1
            line = f":{first.line}" if first.line else ""
            raise RewardError(f"{where}{line}: {first.message}" + (f" (and {more} more problems)" if more else ""))
        return parsed.code


@dataclass(frozen=True)
class ParsedReward:
    """Either code that passed the gate, or the problems, most severe first."""

    code: RewardCode | None
    problems: tuple[RewardProblem, ...]


def parse_reward(source: str, task: Task) -> ParsedReward:
    """Put a text through the static gate. Never raises, whatever the text."""
    try:
        code, problems = _judge(source, task)
    except (RecursionError, MemoryError):
        code, problems = None, [_syntax("the code is nested too deeply; use more intermediate variables")]
    return ParsedReward(code, tuple(_ranked(problems)))


def _judge(source: str, task: Task) -> tuple[RewardCode | None, list[RewardProblem]]:
    problem = _check_size(source)
    if problem is not None:
        return None, [problem]
    try:
        tree = _parse(source)
    except SyntaxError as error:
        return None, [_syntax_error(error)]
    except (ValueError, OverflowError) as error:
        return None, [_syntax(f"not valid Python: {error}")]
    problem = _check_tree(tree)
    if problem is not None:
        return None, [problem]
    problems = check_module(tree, lambda name: _is_field(task, name))
    entry = read_scope(tree).functions.get(ENTRY)
    parameters = _parameters(entry, task, problems) if entry else ()
    if not problems:
        problems = _compile(tree)
    return (None, problems) if problems else (RewardCode(source, parameters), [])


def _check_size(source: str) -> RewardProblem | None:
    if not source.strip():
        return RewardProblem(Failure.NO_CODE, f"there is no code; write the function {ENTRY}")
    lines = source.count("\n") + 1
    if len(source) > MAX_CHARACTERS or lines > MAX_LINES:
        return RewardProblem(
            Failure.FORBIDDEN,
            f"the code is too long ({lines} lines, {len(source)} characters); write at most {MAX_LINES} lines and "
            f"{MAX_CHARACTERS} characters",
        )
    if "\0" in source:
        return _syntax("not valid Python: the text holds NUL characters", source[: source.index("\0")].count("\n") + 1)
    try:
        source.encode("utf-8")
    except UnicodeEncodeError:
        return _syntax("not valid Python: the text holds characters that are not valid Unicode")
    return None


def _check_tree(tree: ast.Module) -> RewardProblem | None:
    """Bound size, depth and numbers without recursion, before anything recursive looks at the tree."""
    if not tree.body:
        return RewardProblem(Failure.NO_CODE, f"there is no code but comments; write the function {ENTRY}")
    count, depth, nodes = 0, 0, list[ast.AST](tree.body)
    while nodes:
        count, depth = count + len(nodes), depth + 1
        line = next((n.lineno for n in nodes if isinstance(n, ast.expr | ast.stmt)), None)
        if count > MAX_NODES:
            return RewardProblem(Failure.FORBIDDEN, "the code is too long; write a shorter reward")
        if depth > MAX_DEPTH:
            return _syntax("the code is nested too deeply; use more intermediate variables", line)
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) > MAX_NUMBER:
                return RewardProblem(Failure.FORBIDDEN, "a number is too large; write at most 1e30", node.lineno)
        nodes = [child for node in nodes for child in ast.iter_child_nodes(node)]
    return None


def _parameters(entry: Function, task: Task, problems: list[RewardProblem]) -> tuple[Parameter, ...]:
    found = []
    if len(arguments_of(entry)) > MAX_PARAMETERS:
        message = f"{ENTRY} has {len(arguments_of(entry))} parameters; at most {MAX_PARAMETERS} are allowed"
        problems.append(RewardProblem(Failure.FORBIDDEN, message, entry.lineno))
    for argument in arguments_of(entry)[:MAX_PARAMETERS]:
        try:
            found.append(resolve_parameter(task, argument.arg))
        except KeyError as error:
            message = f"{error.args[0]}; a constant belongs into the function's body"
            if argument.arg == "self":
                fields = ", ".join(task.field_names())
                message = f"remove `self`: {ENTRY} is a plain function, its parameters are state fields ({fields})"
            problems.append(RewardProblem(Failure.UNKNOWN_FIELD, message, argument.lineno))
    return tuple(found)


def _is_field(task: Task, name: str) -> bool:
    try:
        resolve_parameter(task, name)
    except KeyError:
        return False
    return True


def _parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in a string is no reason to print into the user's terminal
        return ast.parse(source)


def _compile(tree: ast.Module) -> list[RewardProblem]:
    """What only the compiler sees: a `break` outside a loop, a parameter named twice. Runs nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "<reward>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return [_syntax_error(error)]
    except (ValueError, OverflowError) as error:
        return [_syntax(f"not valid Python: {error}")]
    return []


def _syntax_error(error: SyntaxError) -> RewardProblem:
    text = " ".join((error.text or "").split())
    where = f" in `{text}`" if 0 < len(text) <= 80 else ""
    return _syntax(f"not valid Python: {error.msg}{where}", error.lineno)


def _syntax(message: str, line: int | None = None) -> RewardProblem:
    return RewardProblem(Failure.SYNTAX, message, line)


def _ranked(problems: list[RewardProblem]) -> list[RewardProblem]:
    """Most severe first, then by line; the same message once."""
    unique: dict[tuple[Failure, str], RewardProblem] = {}
    for problem in sorted(problems, key=lambda p: (_SEVERITY.index(p.kind), p.line or 0)):
        message = problem.message if len(problem.message) <= MAX_MESSAGE else problem.message[:MAX_MESSAGE] + "..."
        unique.setdefault((problem.kind, message), replace(problem, message=message))
    return list(unique.values())[:MAX_PROBLEMS]


def describe_signature(task: Task) -> str:
    """An example signature that takes every field of the task, for prompts."""
    fields = ", ".join(f"{name}: Tensor" for name in task.field_names())
    return f"def {ENTRY}({fields}) -> Tuple[Tensor, Dict[str, Tensor]]:"


__all__ = ["Constant", "ParsedReward", "RewardCode", "describe_signature", "extract_code", "parse_reward"]
