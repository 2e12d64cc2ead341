"""The control of every experiment: a "model" that draws uniformly from the grammar it is given and knows nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

from synth.errors import ModelError
from synth.gbnf import GrammarError, parse, sample
from synth.llm.base import Completion, Message, SamplingOptions, Usage


class RandomModel:
    """`--model random`: what the search finds with it, it finds without any language model."""

    name = "random"
    supports_grammar = True
    supports_prefill = True

    def complete(self, messages: Sequence[Message], n: int, options: SamplingOptions) -> list[Completion]:
        """`n` texts of the grammar; the seed and the sample's number alone decide them."""
        if options.grammar is None:
            raise ModelError("the model 'random' samples grammars only; it cannot answer a free question")
        try:
            root = parse(options.grammar)
        except GrammarError as error:
            raise ModelError(f"the model 'random' does not understand this grammar: {error}") from error
        seed = options.seed or 0
        return [Completion(sample(root, random.Random(seed + i)), Usage(), 0.0, "stop") for i in range(n)]

    def close(self) -> None:
        """Nothing to release."""
