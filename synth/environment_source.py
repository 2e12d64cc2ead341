"""The simulator's source as the Coder may see it: without anything that computes a reward, a score or success."""

from __future__ import annotations

import ast
import importlib.util
import re
from importlib.metadata import entry_points
from pathlib import Path

from synth.task import Task

_SECRET = re.compile(
    r"reward|metric|score|success|fitness|penalty|penalties|bonus|(?<![a-z])(rew|costs?)(?![a-z])", re.IGNORECASE
)


def environment_source(task: Task) -> str:
    """Source of the task's simulator module, stripped by `strip_rewards`; empty when it cannot be read.

    The module is found, not imported: the command line loads no simulator and no torch for it.
    """
    found = next(iter(entry_points(group="synth.simulators", name=task.simulator)), None)
    if found is None:
        return ""
    try:
        spec = importlib.util.find_spec(found.module)
    except ImportError:
        return ""
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    return strip_rewards(Path(spec.origin).read_text(encoding="utf-8"))


def strip_rewards(source: str) -> str:
    """Remove every statement that names a reward, metric, score or success, then comments and blank runs.

    A function or class is removed by its name; any other statement when a name, attribute, argument or text in it
    tells of one. The handlers of a `try` go with it where they do.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    module.body = [kept for node in module.body if (kept := _stripped(node)) is not None]
    return ast.unparse(ast.fix_missing_locations(module))


def _stripped(node: ast.stmt) -> ast.stmt | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _SECRET.search(node.name):
        return None
    blocks = [key for key in ("body", "orelse", "finalbody") if isinstance(getattr(node, key, None), list)]
    if not blocks:
        return None if _tells(node) else node
    heads = [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt | ast.ExceptHandler)]
    if any(_tells(head) for head in heads):
        return None
    for key in blocks:
        kept = [new for child in getattr(node, key) if (new := _stripped(child)) is not None]
        setattr(node, key, kept or ([ast.Pass()] if key == "body" else []))
    handlers = [h for h in getattr(node, "handlers", []) if h.type is None or not _tells(h.type)]
    for handler in handlers:
        handler.body = [new for child in handler.body if (new := _stripped(child)) is not None] or [ast.Pass()]
    if isinstance(node, ast.Try):
        node.handlers = handlers
    return node


def _tells(node: ast.AST) -> bool:
    for part in ast.walk(node):
        words = [getattr(part, key, None) for key in ("id", "attr", "arg", "name", "value", "module")]
        if any(isinstance(word, str) and _SECRET.search(word) for word in words):
            return True
    return False
