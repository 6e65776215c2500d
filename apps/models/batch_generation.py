"""Generation for a batch of prompts, padded on the left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyhal import Generator, Tensor
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.models.generation import CausalModel, Sampling, evaluating


def generate_batch(
    model: CausalModel,
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
    generators = [Generator(None if seed is None else seed + i) for i in range(len(prompts))]
    fresh = np.array([[*[0] * (width - len(p)), *p] for p in prompts], np.int32)
    mask = np.array([[*[0] * (width - len(p)), *[1] * len(p)] for p in prompts], np.bool_)
    out: list[list[int]] = [[] for _ in prompts]
    going = [True] * len(prompts)
    cache = model.make_cache(len(prompts))
    for step in range(max_tokens):
        with evaluating(model):
            ids, seen = (Tensor(x, device=model.device) for x in (fresh, mask))
            logits = model(ids, cache, last_only=True, attention_mask=seen).to(dtypes.float32).numpy()[:, -1]
        tokens = [sampling.draw(row, g) for row, g in zip(logits, generators, strict=True)]
        for i, token in enumerate(tokens):
            going[i] = going[i] and token not in stop_ids
            if going[i]:
                out[i].append(token)
        if not any(going) or step + 1 == max_tokens:
            break
        fresh = np.array(tokens, np.int32)[:, None]
        mask = np.pad(mask, ((0, 0), (0, 1)), constant_values=True)
    return out
