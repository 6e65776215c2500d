"""Operands of the op `sample_tokens`."""

from __future__ import annotations

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec

OPERANDS = ("logits", "temperature", "top_k", "top_p", "min_p", "typical_p", "seeds", "counters", "out")
"""Buffers by their position in the argument list."""
LARGEST_GROUP = 512
"""Maximum number of work-items that share a row on a GPU."""


def sampled_logits(inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...]) -> Spec | Declined:
    """Return the logits (rows, tokens), or the reason why kernels cannot draw from them."""
    logits, *others = (x for x in (*inputs, *outputs) if isinstance(x, Spec))
    if logits.dtype is dtypes.float64 or any(
        s.dtype not in (dtypes.float32, dtypes.int32) or not s.is_contiguous for s in others
    ):
        return Declined("logits of float64, or parameters that are not contiguous float32")
    if logits.strides[1] != 1 or logits.shape[1] >= 1 << 24:
        return Declined("logits that are not contiguous, or 2^24 tokens or more")
    return logits
