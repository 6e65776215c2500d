"""The shape of an attention problem: sequence lengths, head sizes, and the merged batch axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, broadcast_strides, collapse
from polyhal.hal.protocol import Declined, InputSpec

Triple = tuple[int, int, int]

_BATCH_AXES = 3


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention over `count` heads: `t` queries and `s` keys of `d` features, values of `e` features."""

    batch: Triple
    t: int
    s: int
    d: int
    e: int
    batch_strides: tuple[Triple, ...]
    """Batch strides per operand, in argument order."""

    @property
    def count(self) -> int:
        """Total number of heads of all sequences."""
        return math.prod(self.batch)


def merge_batch_axes(
    operands: Sequence[Spec], mask: Spec | None, t: int, s: int, d: int, e: int
) -> AttentionShape | Declined:
    """Merge the leading axes of all operands; the mask comes last and is broadcast."""
    lead = operands[0].shape[:-2]
    strides = [o.strides[:-2] for o in operands]
    if mask is not None:
        strides.append(broadcast_strides(mask.shape, mask.strides, (*lead, t, s))[:-2])
    lengths, merged = collapse(lead, tuple(strides))
    if len(lengths) > _BATCH_AXES:
        return Declined(f"{len(lengths)} leading axes remain after merging; the kernels support {_BATCH_AXES}")
    fill = _BATCH_AXES - len(lengths)
    batch = (1,) * fill + lengths
    padded = [(0,) * fill + st for st in merged]
    return AttentionShape((batch[0], batch[1], batch[2]), t, s, d, e, tuple((p[0], p[1], p[2]) for p in padded))


def refusal(tensors: Sequence[InputSpec | None], mask: InputSpec | None) -> str:
    """Return the reason why the kernels do not support these operands; empty if they do."""
    if any(not isinstance(s, Spec) for s in tensors):
        return "an operand is a number"
    if any(s is not None and s.dtype is not tensors[0].dtype for s in tensors):  # type: ignore[union-attr]
        return "the operands have different dtypes"
    if mask is not None and mask.dtype.kind not in ("bool", "float"):
        return f"the mask is {mask.dtype.name}"
    return ""


def mask_kind(mask: InputSpec | None) -> int:
    """Return the kernels' code for a mask: 0 for none, 1 for boolean, 2 for additive, 3 for words of packed bits."""
    if mask is None:
        return 0
    return 1 if mask.dtype is dtypes.bool_ else 3 if mask.dtype is dtypes.uint32 else 2
