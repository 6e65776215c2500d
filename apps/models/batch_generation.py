"""Generation for a batch of prompts of different lengths."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.generation import WORTH_CAPTURING, GeneratingModel, GenerationEngine, GenerationRequest
from polyhal.hal.errors import ShapeError, message
from polyhal.models.generation import Sampling


def generate_batch(
    model: GeneratingModel,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_ids: Sequence[int] = (),
) -> list[list[int]]:
    """Return up to `max_tokens` tokens for each prompt. Row i equals the result of `generate` with `seed + i`.

    Prompts may differ in length. A row ends before a token of `stop_ids`. Raises ValueError for an empty prompt, and
    ShapeError if the longest prompt and its tokens exceed the context.
    """
    if not prompts or not all(len(p) for p in prompts):
        raise ValueError(message("generate_batch", "a prompt is empty", expected="at least one token in each"))
    width = max(map(len, prompts))
    if width + max_tokens > model.context_length:
        problem = f"{width} tokens and {max_tokens} more"
        raise ShapeError(message("generate_batch", problem, expected=f"at most {model.context_length} in all"))
    sampling = Sampling(temperature, top_k, top_p)
    engine = GenerationEngine(model, len(prompts), captured=max_tokens >= WORTH_CAPTURING)
    streams = [
        engine.submit(
            GenerationRequest(
                p,
                max_tokens,
                sampling.parameters(None if seed is None else seed + i),
                frozenset(stop_ids),
            )
        )
        for i, p in enumerate(prompts)
    ]
    return [list(stream) for stream in streams]
