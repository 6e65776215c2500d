"""Log-probabilities of tokens, computed on the device with the tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import polyhal as ph
from polyhal import Tensor
from polyhal.hal import dtypes

MOST_ALTERNATIVES = 20
"""Maximum number of alternatives per token."""
_COUNTS = (0, 5, MOST_ALTERNATIVES)
"""Numbers of alternatives that steps compute, few because each is a captured graph of its own."""


class TokenLogprob(NamedTuple):
    """Natural logarithm of the probability of a token, and the most likely tokens with theirs, in falling order.

    Probabilities are the model's own: the softmax of its logits before temperature, penalties, bias and constraints.
    """

    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()


def computed_alternatives(wanted: int, vocabulary: int) -> int:
    """Return the number of alternatives that a step computes if `wanted` are requested."""
    return min(next(count for count in _COUNTS if count >= wanted), vocabulary)


def measured(logits: Tensor, tokens: Tensor, alternatives: int) -> Tensor:
    """Return the log-probabilities (B, 1 + 2 `alternatives`), float32, of tokens (B,) by logits (B, V).

    A row has the token's own, then the most likely tokens', then their ids, which float32 holds exactly up to 2^24. Tokens are
    in falling order of their logits, so that the first one is the greedy choice; equal ones are in order of their ids.
    """
    logits = logits.to(dtypes.float32)
    all_ = ph.log_softmax(logits, -1)
    own = ph.take_along_axis(all_, ph.reshape(tokens, (-1, 1)).to(dtypes.int64), 1)
    if not alternatives:
        return own
    best = ph.topk(logits, alternatives).indices
    return ph.cat([own, ph.take_along_axis(all_, best, 1), best.to(dtypes.float32)], 1)


def read_row(row: np.ndarray, wanted: int) -> TokenLogprob:
    """Return a row of `measured` with the first `wanted` alternatives."""
    count = (len(row) - 1) // 2
    values, ids = row[1 : 1 + count].tolist(), row[1 + count :].tolist()
    best = tuple((int(i), value) for i, value in zip(ids[:wanted], values[:wanted], strict=True))
    return TokenLogprob(float(row[0]), best)
