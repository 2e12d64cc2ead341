"""Two ways to let a language model write a reward: freely, as a whole file, or term by term under a grammar.

A writer turns what the search knows into messages and the model's answers into source. It validates nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sandboxes.base import RewardProblem
from synth.candidate import Candidate
from synth.environment_source import environment_source
from synth.evidence import Evidence
from synth.features import task_features
from synth.grammar import AnswerFrame, TermPlan, build_frame, more_terms, movable_lines, whole_plan
from synth.llm.base import ChatModel, Completion, Message, SamplingOptions
from synth.llm.recorder import purpose
from synth.prompting import Prompts, Rendered
from synth.reward import describe_signature, extract_code
from synth.task import Task

_PARALLEL_CALLS = 8
_TERM_TOKENS = 400
_MOST_TERMS = 6  # rewards do not grow without end
_SHARE = 0.5  # of the grammar's alternatives that one sample may use


@dataclass(frozen=True)
class Context:
    """What the Coder is told besides the task: the parent, how its training went, what went wrong elsewhere."""

    parent: Candidate | None = None
    evidence: Evidence | None = None
    reflection: str = ""
    verdicts: dict[str, str] = field(default_factory=dict)
    failures: tuple[tuple[RewardProblem, int], ...] = ()


@dataclass(frozen=True)
class Answer:
    """One answer, the conversation it ends, and the source found in it."""

    text: str
    source: str | None
    origin: Literal["new", "mutation"]
    conversation: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """Messages to a model, and the prompt that ends them, for the record."""

    messages: tuple[Message, ...]
    prompt: Rendered

    def ask(self, model: ChatModel, count: int, options: SamplingOptions) -> list[Completion]:
        """`count` answers, recorded as made from this prompt."""
        with purpose(self.prompt.template, self.prompt.digest):
            return model.complete(self.messages, count, options)


class Writer(Protocol):
    """Asks a model for rewards."""

    can_repair: bool

    def write(self, count: int, seed: int, context: Context) -> list[Answer]:
        """`count` answers; `seed` decides everything random."""

    def repair(self, broken: Sequence[tuple[Answer, tuple[RewardProblem, ...]]], seed: int) -> list[Answer]:
        """A second try for each answer, told its exact problems."""


class FreeWriter:
    """Whole files from a model that can program; the conversation is Eureka's four messages."""

    can_repair = True

    def __init__(self, model: ChatModel, task: Task, prompts: Prompts, temperature: float = 1.0) -> None:
        self.model, self.task, self.prompts, self.temperature = model, task, prompts, temperature
        self._source = environment_source(task)

    def conversation(self, context: Context) -> Conversation:
        """System and task; then, with a parent, its answer and the feedback."""
        task = self.prompts.render(
            "coder/task", task=self.task, source=self._source, signature=describe_signature(self.task)
        )
        text = task.text
        if context.evidence is None and context.failures:
            text += "\n" + self.prompts.render("coder/failures", failures=context.failures).text
        opening = (Message("system", self.prompts.render("coder/system").text), Message("user", text))
        if context.parent is None or context.evidence is None:
            return Conversation(opening, task)
        feedback = self.prompts.render(
            "coder/feedback",
            evidence=context.evidence,
            reflection=context.reflection,
            verdicts=context.verdicts,
            failures=context.failures,
        )
        replies = (Message("assistant", context.parent.answer), Message("user", feedback.text))
        return Conversation((*opening, *replies), feedback)

    def write(self, count: int, seed: int, context: Context) -> list[Answer]:
        """See `Writer.write`."""
        talk = self.conversation(context)
        origin: Literal["new", "mutation"] = "mutation" if len(talk.messages) > 2 else "new"
        found = talk.ask(self.model, count, SamplingOptions(temperature=self.temperature, seed=seed))
        return [Answer(c.text, extract_code(c.text), origin, talk.messages) for c in found]

    def repair(self, broken: Sequence[tuple[Answer, tuple[RewardProblem, ...]]], seed: int) -> list[Answer]:
        """See `Writer.repair`; the calls run side by side."""

        def again(item: tuple[int, tuple[Answer, tuple[RewardProblem, ...]]]) -> Answer:
            index, (answer, problems) = item
            request = self.prompts.render("coder/repair", problems=problems)
            messages = (*answer.conversation, Message("assistant", answer.text), Message("user", request.text))
            options = SamplingOptions(temperature=self.temperature, seed=seed + index)
            completion = Conversation(messages, request).ask(self.model, 1, options)[0]
            return Answer(completion.text, extract_code(completion.text), answer.origin, messages)

        with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
            return list(pool.map(again, enumerate(broken)))


class GrammarWriter:
    """Terms under a grammar from a model too small to program: valid by construction, so nothing to repair.

    What a mutation keeps, retunes and adds is drawn per sample from the Evaluator's verdicts, so that the samples of
    one generation differ even where the model does not.
    """

    can_repair = False

    def __init__(self, model: ChatModel, task: Task, prompts: Prompts, temperature: float = 1.0) -> None:
        self.model, self.task, self.prompts, self.temperature = model, task, prompts, temperature
        meanings = {f.name: f.meaning for f in task.fields}
        self._words = [(f.name, meanings.get(f.name) or f.definition or "") for f in task_features(task)]

    def conversation(self, context: Context) -> Conversation:
        """System and task, short: a small model attends to little, and every token costs time."""
        feedback = ""
        if context.evidence is not None:
            feedback = self.prompts.render(
                "coder/compact_feedback", evidence=context.evidence, verdicts=context.verdicts
            ).text
        text = self.prompts.render("coder/compact_task", task=self.task, words=self._words, feedback=feedback)
        system = self.prompts.render("coder/compact_system").text
        return Conversation((Message("system", system), Message("user", text.text)), text)

    def write(self, count: int, seed: int, context: Context) -> list[Answer]:
        """See `Writer.write`: each sample has a plan and a grammar of its own."""
        rng = random.Random(seed)
        plans = [draw_plan(self.task, context, rng) for _ in range(count)]
        frames = [build_frame(self.task, plan).thinned(rng, _SHARE) for plan in plans]
        with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
            return list(pool.map(lambda i: self._one(frames[i], context, seed + i), range(count)))

    def _one(self, frame: AnswerFrame, context: Context, seed: int) -> Answer:
        fresh = frame.plan.fresh
        talk = self.conversation(Context() if fresh else context)
        options = SamplingOptions(
            temperature=self.temperature,
            seed=seed,
            grammar=frame.grammar,
            prefill=frame.prefix,
            max_tokens=_TERM_TOKENS,
        )
        text = talk.ask(self.model, 1, options)[0].text
        return Answer(frame.prefix + text, frame.finish(text), "new" if fresh else "mutation", talk.messages)

    def repair(self, broken: Sequence[tuple[Answer, tuple[RewardProblem, ...]]], seed: int) -> list[Answer]:
        """See `Writer.repair`: there is nothing to tell a model that cannot read an error."""
        return [answer for answer, _ in broken]


# Chances that a component of the parent is kept, retuned or left out, by the Evaluator's verdict.
_FATES = {
    "keep": (0.60, 0.30, 0.10),
    "rescale": (0.20, 0.65, 0.15),
    "rewrite": (0.25, 0.35, 0.40),
    "drop": (0.20, 0.20, 0.60),
}


def draw_plan(task: Task, context: Context, rng: random.Random) -> TermPlan:
    """What the next sample keeps of the parent; nothing, more often the worse the parent is."""
    parent, evidence = context.parent, context.evidence
    lines = movable_lines(parent.source, task) if parent is not None and parent.source else {}
    if not lines or evidence is None:
        return whole_plan(task, rng)
    anew = 0.7 if evidence.metric < 0.1 else 0.35 if evidence.metric < 0.4 else 0.15
    if rng.random() < anew:
        return whole_plan(task, rng)
    kept: list[str] = []
    retuned: list[str] = []
    for name, line in lines.items():
        fate = rng.choices((kept, retuned, None), _FATES[context.verdicts.get(name, "keep")])[0]
        if fate is not None:
            fate.append(line)
    if not kept and not retuned:
        return whole_plan(task, rng)
    new = rng.choice((0, 1, 1, 2))
    if len(kept) == len(lines):
        new = max(1, new)  # else nothing would change
    if len(kept) + len(retuned) > _MOST_TERMS and retuned:
        new = 0
    return more_terms(task, TermPlan(tuple(kept), tuple(retuned)), new, rng)


def make_writer(model: ChatModel, task: Task, prompts: Prompts) -> Writer:
    """The writer that suits the model."""
    if model.supports_grammar and model.supports_prefill:
        return GrammarWriter(model, task, prompts)
    return FreeWriter(model, task, prompts)
