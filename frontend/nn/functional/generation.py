"""Sampling of tokens from the predictions of language models, on the device."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor

_sample_tokens = FUNCTIONS["sample_tokens"]


def sample_tokens(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    typical_p: Tensor,
    seeds: Tensor,
    counters: Tensor,
) -> Tensor:
    """Draw token ids (B,), int32, from logits (B, V), by parameters (B,) of each row.

    Logits are divided by `temperature`; 0 selects the most likely token. Then tokens are dropped, each time by the
    probabilities of the tokens that remain: all but the `top_k` most likely ones (0: none), all but the most likely ones
    with the total probability `top_p` (1: none; Holtzman et al., arXiv:1904.09751), those less likely than `min_p` times the
    most likely one, and all but the ones whose information is closest to its mean with the total probability `typical_p`
    (1: none; Meister et al., arXiv:2202.00666). `seeds` (B, 2) and `counters` (B,), int32, select the random number of each
    row. `top_k` is int32, the others float32.
    """
    tokens: Tensor = _sample_tokens(logits, temperature, top_k, top_p, min_p, typical_p, seeds, counters)
    return tokens


def penalize(
    logits: Tensor, seen: Tensor, generated: Tensor, repetition: Tensor, presence: Tensor, frequency: Tensor
) -> Tensor:
    """Lower the logits (B, V) of tokens that occurred, by parameters (B,) of each row.

    Logits of tokens in the prompt or the text, with a count above 0 in `seen` (B, V), are divided by `repetition` if positive
    and multiplied by it otherwise (Keskar et al., arXiv:1909.05858). Each occurrence in the text, counted in `generated`
    (B, V), subtracts `frequency`, and any number of them `presence`. Counts are int32.
    """
    repetition, presence, frequency = (ops.unsqueeze(x, 1) for x in (repetition, presence, frequency))
    repeated = ops.where(ops.greater(logits, 0.0), logits / repetition, logits * repetition)
    lowered = ops.where(ops.greater(seen, 0), repeated, logits)
    counts = generated.to(dtypes.float32)
    penalized: Tensor = lowered - frequency * counts - ops.where(ops.greater(generated, 0), presence, 0.0)
    return penalized
