"""Prompts with known answers: of single runs of a model at temperature 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

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


class Departure(NamedTuple):
    """A token of an answer that is not the expected one."""

    place: int
    """Number of equal tokens before it."""
    lead: float
    """Difference of the two largest logits."""
    error: float
    """Largest difference of any logit between orders of its sums: tokens in one step, all but the last, and one per step."""
    largest: float
    """Magnitude of the largest logit."""

    @property
    def is_tie(self) -> bool:
        """True if the order of sums decides.

        If every order is within E of the exact logits, two orders choose different tokens only if the exact lead is at most
        2 E, because each of two tokens moves by up to E. The lead in one order is then at most 4 E. Orders that differ by a
        sixteenth of the largest logit differ by more than roundings, also of 8-bit activations.
        """
        return self.lead <= 4 * self.error <= self.largest / 4


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

    def departure(self, question: Question, text: str) -> Departure:
        """Return where an answer departs from the expected one, and how the tokens compare there."""
        same = max(n for n, known in enumerate(question.texts) if text.startswith(known.rstrip("\ufffd")))
        ids = [*question.prompt, *question.answer[:same]]
        whole, *others = map(self._logits, ([ids], [ids[:-1], ids[-1:]], [[i] for i in ids]))
        second, first = np.sort(whole)[-2:]
        error = max(np.abs(other - whole).max() for other in others)
        return Departure(same, float(first - second), float(error), float(np.abs(whole).max()))

    def _logits(self, parts: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the logits after the last token, in float64. The model reads one part after another."""
        model = self._model.model
        cache = model.make_cache(1)
        with no_grad():
            for part in filter(None, parts):
                logits = model(Tensor(np.array([part], np.int32), device=model.device), cache, True)
        row: np.ndarray = logits.numpy().astype(np.float64).reshape(-1)
        return row

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
