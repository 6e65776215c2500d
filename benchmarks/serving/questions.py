"""Prompts with known answers: of single runs of a model at temperature 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from polyhal import Tensor, no_grad
from polyhal.generation import GenerationEngine, GenerationRequest, SamplingParameters
from polyhal.llm import load
from polyhal.text import IncrementalDecoder

_GREEDY = SamplingParameters(temperature=0.0)
_ROOTS = (0, 3, 17, 60)
"""Lengths of the beginnings that prompts share."""
_LONGEST_TAIL = 24


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt with its answer: the text after each number of tokens, and how the longest answer ends."""

    prompt: list[int]
    answer: list[int]
    texts: tuple[str, ...]
    stops: bool
    """True if the model ends the answer itself."""

    def expected(self, tokens: int) -> tuple[str, str]:
        """Return the text and the reason of the end of an answer of at most `tokens` tokens."""
        if tokens > len(self.answer) and self.stops:
            return self.texts[-1], "stop"
        return self.texts[tokens], "length"


class SingleRuns:
    """A model in this process, which answers one prompt at a time."""

    def __init__(self, path: Path, device: str, context: int) -> None:
        self._model = load(path, device, context=context)
        self._engine = GenerationEngine(self._model.model, 1)

    def questions(self, count: int, longest: int, seed: int) -> list[Question]:
        """Make prompts, and answer each of them with up to `longest` tokens."""
        random, model = Random(seed), self._model
        known = range(model.tokenizer.vocab_size)
        special = set(model.tokenizer.special_ids) | set(model.stop_ids)
        plain = [i for i in known if i not in special]
        roots = [random.choices(plain, k=length) for length in _ROOTS]
        found = []
        for i in range(count):
            root = roots[i % len(roots)][: max(0, model.context - longest - _LONGEST_TAIL)]
            found.append(self._answered(root + random.choices(plain, k=random.randint(1, _LONGEST_TAIL)), longest))
        return found

    def gap(self, question: Question, text: str) -> tuple[int, float]:
        """Return after how many tokens an answer departs from the expected one, and how far the best token leads there.

        The lead is the difference of the two largest logits, as a multiple of the spacing of float32 at the largest of all.
        """
        same = max(n for n, known in enumerate(question.texts) if text.startswith(known.rstrip("\ufffd")))
        ids = [*question.prompt, *question.answer[:same]]
        with no_grad():
            logits = self._model.model(Tensor(np.array([ids], np.int32), device=self._model.model.device), None, True)
        row = logits.numpy().astype(np.float64).reshape(-1)
        second, first = np.sort(row)[-2:]
        return same, float((first - second) / np.spacing(np.float32(np.abs(row).max())))

    def _answered(self, prompt: list[int], longest: int) -> Question:
        stops = frozenset(self._model.stop_ids)
        stream = self._engine.submit(GenerationRequest(prompt, longest, _GREEDY, stops))
        answer = list(stream)
        return Question(prompt, answer, self._texts(prompt, answer), stream.finish_reason == "stop")

    def _texts(self, prompt: list[int], answer: Sequence[int]) -> tuple[str, ...]:
        """Return the whole text of each beginning of an answer."""
        texts = []
        for count in range(len(answer) + 1):
            decoder = IncrementalDecoder(self._model.tokenizer, prompt)
            texts.append("".join([*map(decoder.push, answer[:count]), decoder.finish()]))
        return tuple(texts)
