"""A small grammar of text: written out as GBNF for llama.cpp, or sampled at random as the control of every ablation.

Expressions form no recursion, so that every text of the grammar is finite and a random one costs nothing.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """This very text."""

    text: str


@dataclass(frozen=True)
class Seq:
    """One part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alt:
    """One of several."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """The part, between `least` and `most` times."""

    part: Node
    least: int
    most: int


@dataclass(frozen=True)
class Rule:
    """A named part: written once, referred to by name."""

    name: str
    body: Node


Node = Text | Seq | Alt | Repeat | Rule


def seq(*parts: Node | str) -> Node:
    """Parts in order; strings stand for themselves."""
    return Seq(tuple(_node(part) for part in parts))


def alt(options: Iterable[Node | str]) -> Node:
    """One of the options; strings stand for themselves."""
    return Alt(tuple(_node(option) for option in options))


def _node(part: Node | str) -> Node:
    return Text(part) if isinstance(part, str) else part


def render(root: Node) -> str:
    """The grammar as GBNF with the start rule `root`."""
    rules: dict[str, str] = {}
    start = _render(root, rules)
    return "\n".join([f"root ::= {start}", *(f"{name} ::= {body}" for name, body in rules.items())]) + "\n"


def _render(node: Node, rules: dict[str, str]) -> str:
    if isinstance(node, Text):
        return _quoted(node.text)
    if isinstance(node, Seq):
        return " ".join(_render(part, rules) for part in node.parts)
    if isinstance(node, Alt):
        return "(" + " | ".join(_render(option, rules) for option in node.options) + ")"
    if isinstance(node, Repeat):
        return f"({_render(node.part, rules)}){{{node.least},{node.most}}}"
    if node.name not in rules:
        rules[node.name] = ""  # keeps its place in the order of first use
        rules[node.name] = _render(node.body, rules)
    return node.name


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def sample(node: Node, rng: random.Random) -> str:
    """A random text of the grammar: every alternative and every count equally likely."""
    if isinstance(node, Text):
        return node.text
    if isinstance(node, Seq):
        return "".join(sample(part, rng) for part in node.parts)
    if isinstance(node, Alt):
        return sample(rng.choice(node.options), rng)
    if isinstance(node, Repeat):
        return "".join(sample(node.part, rng) for _ in range(rng.randint(node.least, node.most)))
    return sample(node.body, rng)


def thin(node: Node, rng: random.Random, share: float) -> Node:
    """The same grammar with fewer choices: of every set of alternatives a random `share` stays, two at least.

    A small model gives nearly the same answer every time; what it may not say today it cannot repeat. Rules are written
    out, because each place keeps other alternatives. The number of repetitions is drawn here too: left open, every
    token would have to be tried against each way to go on, which is slower by a factor of thirty.
    """
    if isinstance(node, Text):
        return node
    if isinstance(node, Rule):
        return thin(node.body, rng, share)
    if isinstance(node, Seq):
        return Seq(tuple(thin(part, rng, share) for part in node.parts))
    if isinstance(node, Repeat):
        return Seq(tuple(thin(node.part, rng, share) for _ in range(rng.randint(node.least, node.most))))
    count = max(min(2, len(node.options)), round(share * len(node.options)))
    kept = sorted(rng.sample(range(len(node.options)), count))
    return Alt(tuple(thin(node.options[index], rng, share) for index in kept))


class GrammarError(ValueError):
    """A text that is not GBNF of the kind `render` writes."""


_TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([a-zA-Z][\w-]*)|\{(\d+),(\d+)\}|([()|]))')
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


def parse(text: str) -> Node:
    """The inverse of `render`: so that a stand-in for a model can sample whatever grammar it is given."""
    bodies: dict[str, str] = {}
    for line in text.strip().splitlines():
        name, found, body = line.partition(" ::= ")
        if not found:
            raise GrammarError(f"not a rule: {line[:60]}")
        bodies[name] = body
    if "root" not in bodies:
        raise GrammarError("there is no rule named root")
    return _Parser(bodies).rule("root").body


class _Parser:
    """Recursive descent over one rule's body at a time."""

    def __init__(self, bodies: dict[str, str]) -> None:
        self.bodies = bodies
        self.done: dict[str, Rule] = {}

    def rule(self, name: str) -> Rule:
        if name not in self.done:
            if name not in self.bodies:
                raise GrammarError(f"no rule named {name}")
            tokens = [m for m in _TOKEN.finditer(self.bodies[name])]
            node, rest = self._alternatives(tokens)
            if rest:
                raise GrammarError(f"rule {name}: unexpected {rest[0].group(0).strip()}")
            self.done[name] = Rule(name, node)
        return self.done[name]

    def _alternatives(self, tokens: list[re.Match[str]]) -> tuple[Node, list[re.Match[str]]]:
        options = []
        while True:
            node, tokens = self._sequence(tokens)
            options.append(node)
            if not tokens or tokens[0][5] != "|":
                return (options[0] if len(options) == 1 else Alt(tuple(options))), tokens
            tokens = tokens[1:]

    def _sequence(self, tokens: list[re.Match[str]]) -> tuple[Node, list[re.Match[str]]]:
        parts: list[Node] = []
        while tokens and tokens[0][5] not in ("|", ")"):
            token, tokens = tokens[0], tokens[1:]
            if token[5] == "(":
                node, tokens = self._alternatives(tokens)
                if not tokens or tokens[0][5] != ")":
                    raise GrammarError("a bracket is not closed")
                parts.append(node)
                tokens = tokens[1:]
            elif token[2]:
                parts.append(self.rule(token[2]))
            elif token[3]:
                parts[-1] = Repeat(parts[-1], int(token[3]), int(token[4]))
            else:
                parts.append(Text(re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), token[1])))
        return Seq(tuple(parts)), tokens
