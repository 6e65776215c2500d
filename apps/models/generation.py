"""Text generation: token by token, sampled from the predictions of a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from polyhal import Device, Generator, Tensor, jit, no_grad
from polyhal.hal import dtypes
from polyhal.hal.errors import message
from polyhal.nn import KVCache

_WORTH_CAPTURING = 100
"""Minimum number of tokens for which recording a step is faster."""


class CausalModel(Protocol):
    """Interface of language models for generation; `GPT` and `Decoder` implement it."""

    training: bool

    @property
    def context_length(self) -> int:
        """Maximum number of tokens in the context."""

    @property
    def device(self) -> Device:
        """Device of the weights."""

    def __call__(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        last_only: bool = False,
        attention_mask: Tensor | None = None,
    ) -> Any:
        """Return logits (B, T, V) of tokens (B, T), or (B, 1, V) of the last ones; with a cache, `ids` continue it.

        `attention_mask` (B, keys) is 0 at padding.
        """

    def make_cache(self, batch: int = 1) -> KVCache:
        """Make an empty cache for `context_length` tokens."""

    def train(self, mode: bool = True) -> Any:
        """Set training mode, or evaluation mode."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is sampled from logits.

    `temperature` 0 selects the most likely token. `top_k` keeps the k most likely tokens; `top_p` keeps the smallest set of
    most likely tokens with that total probability (Holtzman et al., arXiv:1904.09751).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(message("generate", f"temperature is {self.temperature}", expected="0 or more"))
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(message("generate", f"top_k is {self.top_k}", expected="1 or more"))
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(message("generate", f"top_p is {self.top_p}", expected="above 0 and at most 1"))

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the probabilities (V,), in float64, of tokens with logits (V,)."""
        scores = logits.astype(np.float64)
        if self.temperature == 0:
            out = np.zeros_like(scores)
            out[np.argmax(scores)] = 1.0
            return out
        scores = (scores - scores.max()) / self.temperature
        if self.top_k is not None and self.top_k < len(scores):
            scores = np.where(scores >= np.partition(scores, -self.top_k)[-self.top_k], scores, -np.inf)
        out = np.exp(scores)
        out = np.asarray(out / out.sum(), np.float64)
        if self.top_p is not None:
            order = np.argsort(-out, kind="stable")
            before = np.cumsum(out[order]) - out[order]
            out[order[before >= self.top_p]] = 0.0
            out /= out.sum()
        return out

    def draw(self, logits: np.ndarray, generator: Generator) -> int:
        """Sample a token id. Equal generator states yield equal tokens."""
        cumulative = np.cumsum(self.probabilities(logits))
        high, low = generator.words(2)
        u = ((int(high) >> 5) * 2.0**26 + (int(low) >> 6)) * 2.0**-53
        return int(
            min(
                np.searchsorted(cumulative, u * cumulative[-1], side="right"),
                np.flatnonzero(np.diff(cumulative, prepend=0.0))[-1],
            )
        )


def stream(
    model: CausalModel,
    prompt_ids: Sequence[int],
    max_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_ids: Sequence[int] = (),
    use_cache: bool = True,
    excluded_ids: Sequence[int] = (),
) -> Iterator[int]:
    """Yield up to `max_tokens` tokens after a prompt, as they are sampled; a token in `stop_ids` ends the stream.

    Tokens in `excluded_ids` are never sampled.

    When the context is full, its older half is dropped, with and without the cache. The model is in evaluation mode while a
    token is computed. Raises ValueError for an empty prompt.
    """
    if not len(prompt_ids):
        raise ValueError(message("generate", "the prompt is empty", expected="at least one token"))
    sampling = Sampling(temperature, top_k, top_p)
    return _stream(
        model,
        [int(i) for i in prompt_ids],
        max_tokens,
        sampling,
        Generator(seed),
        frozenset(stop_ids),
        use_cache,
        list(excluded_ids),
    )


def _stream(
    model: CausalModel,
    ids: list[int],
    max_tokens: int,
    sampling: Sampling,
    generator: Generator,
    stop: frozenset[int],
    use_cache: bool,
    excluded: list[int],
) -> Iterator[int]:
    block = model.context_length
    context = ids[-block:]
    cache = model.make_cache() if use_cache else None
    decoder = CapturedDecoder(model, cache) if cache is not None and max_tokens >= _WORTH_CAPTURING else None
    fresh = context
    for _ in range(max_tokens):
        if len(context) > block:
            context = context[-max(block // 2, 1) :]
            fresh = context
            if cache is not None:
                cache.reset()
        if decoder is not None and len(fresh) == 1 and decoder.cache.length:
            logits = decoder.next_logits(fresh[0])
        else:
            logits = _next_logits(model, fresh if cache is not None else context, cache)
        if excluded:
            logits = logits.copy()
            logits[excluded] = -np.inf
        token = sampling.draw(logits, generator)
        if token in stop:
            return
        yield token
        context = [*context, token]
        fresh = [token]


class CapturedDecoder:
    """Decodes token by token with a filled cache, in a captured step, recorded once per span (see `KVCache.span`)."""

    def __init__(self, model: CausalModel, cache: KVCache) -> None:
        self.cache = cache
        self._model = model
        self._step = jit(self._logits, warm_up=False, max_graphs=16)

    def next_logits(self, token: int) -> np.ndarray:
        """Return the logits (V,) after `token`, on the host. Raises ShapeError if the cache is full."""
        ids = Tensor(np.array([[token]], np.int32), device=self._model.device)
        with evaluating(self._model):
            logits: np.ndarray = self._step(ids, self.cache.span(self.cache.length + 1)).numpy()
        result: np.ndarray = logits[0, -1]
        return result

    def _logits(self, ids: Tensor, span: int) -> Tensor:
        self.cache.reach = span
        logits = self._model(ids, self.cache, last_only=True)
        result: Tensor = logits.to(dtypes.float32)
        return result


def _next_logits(model: CausalModel, ids: list[int], cache: KVCache | None) -> np.ndarray:
    """Return the logits (V,) after `ids`, on the host."""
    numbers = Tensor(np.array([ids], np.int32), device=model.device)
    with evaluating(model):
        logits = model(numbers, cache, last_only=True)
        result: np.ndarray = logits.to(dtypes.float32).numpy()[0, -1]
        return result


@contextmanager
def evaluating(model: CausalModel) -> Iterator[None]:
    """Set a model to evaluation mode and disable the tape, in the block."""
    training = model.training
    if training:
        model.train(False)
    try:
        with no_grad():
            yield
    finally:
        if training:
            model.train()


def generate(
    model: CausalModel,
    prompt_ids: Sequence[int],
    max_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_ids: Sequence[int] = (),
    on_token: Callable[[int], object] | None = None,
    use_cache: bool = True,
    excluded_ids: Sequence[int] = (),
) -> list[int]:
    """Return the tokens of `stream` as a list; `on_token` is called with each token as it is sampled."""
    out = []
    for token in stream(
        model, prompt_ids, max_tokens, temperature, top_k, top_p, seed, stop_ids, use_cache, excluded_ids
    ):
        out.append(token)
        if on_token is not None:
            on_token(token)
    return out
