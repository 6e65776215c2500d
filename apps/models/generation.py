"""Text generation: token by token, sampled from the predictions of a language model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from polyhal.generation import (
    WORTH_CAPTURING,
    GeneratingModel,
    GenerationEngine,
    GenerationRequest,
    SamplingParameters,
    tokens_without_cache,
)
from polyhal.hal.errors import SettingError, message


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
        if self.top_k is not None and self.top_k < 1:
            raise SettingError(message("generate", f"top_k is {self.top_k}", expected="1 or more"))
        self.parameters()

    def parameters(self, seed: int | None = None, excluded_ids: Sequence[int] = ()) -> SamplingParameters:
        """Return the parameters of a request. Raises ValueError."""
        excluded = dict.fromkeys(excluded_ids, -math.inf)
        top_p = 1.0 if self.top_p is None else self.top_p
        return SamplingParameters(self.temperature, self.top_k or 0, top_p, logit_bias=excluded, seed=seed)


def stream(
    model: GeneratingModel,
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

    `temperature`, `top_k` and `top_p` are a `Sampling`. Tokens in `excluded_ids` are never sampled.

    When the context is full, its older half is dropped, with and without the cache. The model is in evaluation mode while a
    token is computed. Raises ValueError for an empty prompt.
    """
    sampling = Sampling(temperature, top_k, top_p).parameters(seed, excluded_ids)
    prompt = [int(i) for i in prompt_ids][-model.context_length :]
    request = GenerationRequest(prompt, max_tokens, sampling, frozenset(stop_ids), slide=True)
    if not use_cache:
        return tokens_without_cache(model, request)
    return GenerationEngine(model, captured=max_tokens >= WORTH_CAPTURING).submit(request)


def generate(
    model: GeneratingModel,
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
