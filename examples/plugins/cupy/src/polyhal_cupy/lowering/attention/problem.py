"""An attention call as batched products: merged batch axes, bands of queries, and parts of the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.problems import attention
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, broadcast_strides, collapse
from polyhal.hal.protocol import Declined, InputSpec
from polyhal_cupy import blas
from polyhal_cupy.lowering.gemm.cublas import Matrices

_BATCH_AXES = 3
_SCORE_BYTES = 1 << 30
"""Maximum bytes for the scores of one part of the batch."""
_BAND, _BANDS = 128, 8
"""Minimum queries per band, and approximate maximum number of bands."""


@dataclass(frozen=True, slots=True)
class Band:
    """`rows` queries starting at `first`, and the number of keys visible to the last of them."""

    first: int
    rows: int
    keys: int


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the batch, starting at index `start` of its first axis, with lengths `batch`."""

    start: int
    batch: tuple[int, int, int]

    @property
    def count(self) -> int:
        """Total number of heads of all sequences."""
        return math.prod(self.batch)


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """`t` queries and `s` keys of `d` features, values of `e` features, over merged batch axes, the longest one first."""

    batch: tuple[int, int, int]
    t: int
    s: int
    d: int
    e: int
    batch_strides: tuple[tuple[int, int, int], ...]
    """Batch strides per operand, in argument order; the mask's come last."""
    mask_strides: tuple[int, int] = (0, 0)

    @property
    def matrices_per_index(self) -> int:
        """Number of matrices per index of the first batch axis."""
        return self.batch[1] * self.batch[2]

    def bands(self, causal: bool) -> list[Band]:
        """Return bands of queries in order. Under a causal mask, each band only uses the keys visible to its last query."""
        if not causal or self.s < self.t:  # with fewer keys than queries, some queries are fully masked
            return [Band(0, self.t, self.s)]
        height = round_up(max(ceil_div(self.t, _BANDS), _BAND), _BAND)
        ends = [*range(height, self.t, height), self.t]
        return [Band(first, end - first, end + self.s - self.t) for first, end in zip([0, *ends], ends, strict=False)]

    def parts(self, itemsize: int) -> list[Part]:
        """Return parts of the batch whose scores fit in memory."""
        index_bytes = self.matrices_per_index * self.t * self.s * itemsize
        length = max(1, min(self.batch[0], _SCORE_BYTES // max(index_bytes, 1)))
        starts = range(0, self.batch[0], length)
        return [Part(start, (min(length, self.batch[0] - start), *self.batch[1:])) for start in starts]

    def operand(self, place: int, spec: Spec, strides: tuple[int, int, int], part: Part) -> Matrices:
        """Return the matrices of an operand for a part of the batch."""
        return Matrices(place, spec.strides[-2], spec.strides[-1], strides, part.start * strides[0])


def describe(
    operands: Sequence[Spec], mask: InputSpec | None, t: int, s: int, d: int, e: int
) -> AttentionProblem | Declined:
    """Merge the batch axes of all operands and of the mask. Declines if more than three remain."""
    lead = operands[0].shape[:-2]
    strides = [o.strides[:-2] for o in operands]
    mask_strides = (0,) * (len(lead) + 2)
    if isinstance(mask, Spec):
        mask_strides = broadcast_strides(mask.shape, mask.strides, (*lead, t, s))
    lengths, merged = collapse(lead, (*strides, mask_strides[:-2]))
    if len(lengths) > _BATCH_AXES:
        return Declined(f"{len(lengths)} leading axes remain after merging; the kernels support {_BATCH_AXES}")
    fill = _BATCH_AXES - len(lengths)
    # The longest axis comes first, because parts of the batch are ranges of it.
    b = (*lengths, *(1,) * fill)
    padded = [(*p, *(0,) * fill) for p in merged]
    return AttentionProblem(
        (b[0], b[1], b[2]), t, s, d, e, tuple((p[0], p[1], p[2]) for p in padded), (mask_strides[-2], mask_strides[-1])
    )  # fmt: skip


def refusal(tensors: Sequence[InputSpec | None], mask: InputSpec | None) -> str:
    """Return the reason why these operands are not supported; empty if they are."""
    if not isinstance(mask, Spec | None):
        return "the mask is a number"
    reason = attention.refusal(tensors, mask)
    if reason:
        return reason
    assert tensors[0] is not None
    return "" if blas.supports(tensors[0].dtype) else "cuBLAS does not support the operands' dtype"


def score_dtype(dtype: DType) -> DType:
    """Return the dtype of the scores of operands of `dtype`."""
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
