"""Attention and its gradient: batched products by cuBLAS, with one kernel between them for masks and softmax.

Queries, keys and values are passed to cuBLAS where they lie, so that heads that are views of one projection are not
copied. Scores are kept in float32; where they would take too much memory, the batch is worked off in parts. Under a causal
mask, queries are worked off in bands, each with the keys that its last query sees: the other scores are never computed.

Products of half precision run on tensor cores. Probabilities rounded to half precision would lose digits that the result
has, so they are given as sums of two halves, and multiplied twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import attention
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, broadcast_strides, collapse, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal_cupy import blas
from polyhal_cupy.launch import Parameter, Pointer, longs, pointers, uints, ulongs
from polyhal_cupy.lowering.gemm.cublas import AddressTable, Matrices, Product, Step, contiguous_matrices, multiply
from polyhal_cupy.lowering.pointwise.copy import copy as copy_launch
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.runtime import Runtime

_BATCH_AXES = 3
_SCORE_BYTES = 1 << 30
"""What the scores of one part of the batch may take."""
_BAND, _BANDS = 128, 8
"""Queries of a band, at least, and about how many bands there are at most."""

_UNWALKABLE = "cuBLAS cannot walk the rows of an operand"


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """t queries, s keys of d features, values of e features, over a batch whose axes are merged as far as they can be."""

    batch: tuple[int, int, int]
    t: int
    s: int
    d: int
    e: int
    steps: tuple[tuple[int, int, int], ...]
    """Batch strides of every operand, in the order in which they were given; the mask's come last."""
    mask_steps: tuple[int, int] = (0, 0)

    @property
    def count(self) -> int:
        return math.prod(self.batch)

    @property
    def rest(self) -> int:
        """Matrices per index of the first axis of the batch."""
        return self.batch[1] * self.batch[2]

    def bands(self, causal: bool) -> list[Band]:
        """The queries in order, in bands."""
        if not causal or self.s < self.t:  # with fewer keys than queries, some queries see nothing
            return [Band(0, self.t, self.s)]
        height = round_up(max(ceil_div(self.t, _BANDS), _BAND), _BAND)
        ends = [*range(height, self.t, height), self.t]
        return [Band(first, end - first, end + self.s - self.t) for first, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True, slots=True)
class Band:
    """`rows` queries from `first` on, and the number of keys that the last of them sees."""

    first: int
    rows: int
    keys: int


@dataclass(frozen=True, slots=True)
class Part:
    """The batch from index `start` of its first axis on, with `batch` as its lengths."""

    start: int
    batch: tuple[int, int, int]

    @property
    def count(self) -> int:
        return math.prod(self.batch)


def _arrange(
    operands: Sequence[Spec], mask: InputSpec | None, t: int, s: int, d: int, e: int
) -> AttentionShape | Declined:
    lead = operands[0].shape[:-2]
    strides = [o.strides[:-2] for o in operands]
    mask_strides = (0,) * (len(lead) + 2)
    if isinstance(mask, Spec):
        mask_strides = broadcast_strides(mask.shape, mask.strides, (*lead, t, s))
    lengths, steps = collapse(lead, (*strides, mask_strides[:-2]))
    if len(lengths) > _BATCH_AXES:
        return Declined(f"{len(lengths)} leading axes cannot be merged; the kernels take {_BATCH_AXES}")
    fill = _BATCH_AXES - len(lengths)
    # The longest axis leads, because parts of the batch are ranges of it.
    b = (*lengths, *(1,) * fill)
    padded = [(*p, *(0,) * fill) for p in steps]
    return AttentionShape(
        (b[0], b[1], b[2]), t, s, d, e, tuple((p[0], p[1], p[2]) for p in padded), (mask_strides[-2], mask_strides[-1])
    )  # fmt: skip


def _refusal(tensors: Sequence[InputSpec | None], mask: InputSpec | None) -> str:
    """Why these operands cannot be taken; empty when they can."""
    if not isinstance(mask, Spec | None):
        return "a mask that is a number"
    reason = attention.refusal(tensors, mask)
    if reason:
        return reason
    assert tensors[0] is not None
    return "" if blas.supports(tensors[0].dtype) else "operands that cuBLAS does not multiply"


def _real(dtype: DType) -> DType:
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def _parts(shape: AttentionShape, item: int) -> list[Part]:
    """Ranges of the batch whose scores fit in memory."""
    per_index = shape.rest * shape.t * shape.s * item
    each = max(1, min(shape.batch[0], _SCORE_BYTES // max(per_index, 1)))
    return [
        Part(start, (min(each, shape.batch[0] - start), *shape.batch[1:])) for start in range(0, shape.batch[0], each)
    ]


def _operand(place: int, spec: Spec, steps: tuple[int, int, int], part: Part) -> Matrices:
    return Matrices(place, spec.strides[-2], spec.strides[-1], steps, part.start * steps[0])


class _Rows:
    """The kernel between the products: its definitions and parameters for a part of the batch."""

    def __init__(
        self, runtime: Runtime, shape: AttentionShape, dtype: DType, mask: InputSpec | None, causal: bool, band: int
    ) -> None:
        self._runtime = runtime
        self._shape = shape
        self._mask = mask
        self._dtype = dtype
        self._band = band
        self.split = dtype is not _real(dtype)
        self._definitions: dict[str, str | int | bool] = {
            "CAUSAL": causal, "MASK": attention.mask_kind(mask),
            "MASK_DTYPE": "float32" if mask is None else mask.dtype.name, "SPLIT": self.split, "SPLIT_DTYPE": dtype.name,
        }  # fmt: skip

    def launch(
        self, kernel: str, part: Part, scores: Sequence[int], mask: int, lse: int, handed: Sequence[int]
    ) -> Launch | Declined:
        """A launch with the arguments at these places; `handed` are those of the halves, if the dtype is split."""
        shape, real = self._shape, _real(self._dtype)
        arranged = rows.arrange((contiguous(real, (part.count * shape.t, shape.s)),), 1)
        if isinstance(arranged, Declined):
            return arranged
        masked: list[Parameter] = []
        if isinstance(self._mask, Spec):
            masked = [Pointer(mask, part.start * shape.batch_strides[-1][0] * self._mask.dtype.itemsize)]
        first_row = part.start * shape.rest * shape.t
        parameters: list[Parameter] = [
            *pointers(*scores), *masked, Pointer(lse, first_row * real.itemsize), *pointers(*handed), *ulongs(arranged.count),
            *uints(shape.s, shape.t, self._band, *part.batch[1:]), *longs(*shape.batch_strides[-1], *shape.mask_steps),
        ]  # fmt: skip
        return self._runtime.launch(
            kernel, "attention/rows", arranged.definitions | self._definitions, parameters, arranged.blocks, arranged.threads,
            kernel=kernel,
        )  # fmt: skip


class _Products:
    """The products with tables of scores, band by band, for one part of the batch. `failed` when cuBLAS takes one not."""

    def __init__(
        self, runtime: Runtime, shape: AttentionShape, bands: Sequence[Band], part: Part, dtype: DType, place: int
    ) -> None:
        """`place` is that of the workspace for addresses."""
        self.table = AddressTable(runtime, place, part.batch)
        self._runtime = runtime
        self._shape = shape
        self._bands = bands
        self._part = part
        self._dtype = dtype
        self.failed = False

    def _add(self, steps: list[Step], m: int, n: int, k: int, a: Matrices, b: Matrices, out: Matrices, out_dtype: DType,
             alpha: float, beta: float, name: str) -> None:  # fmt: skip
        p = Product(self._part.batch, m, n, k, a, b, out, self._dtype, out_dtype, alpha, beta)
        step = multiply(self._runtime, p, name, self.table)
        if step is None:
            self.failed = True
        else:
            steps.append(step)

    def _table(self, place: int, band: Band) -> Matrices:
        return contiguous_matrices(place, self._part.batch, self._shape.t, self._shape.s).from_row(band.first)

    def scores(self, table: int, a: Matrices, b: Matrices, k: int, alpha: float, name: str) -> list[Step]:
        """table = alpha a b' for `a` of queries and `b` of keys, with k features."""
        steps: list[Step] = []
        real = _real(self._dtype)
        for band in self._bands:
            rows_of_a, out = a.from_row(band.first), self._table(table, band)
            self._add(steps, band.rows, band.keys, k, rows_of_a, b.transposed, out, real, alpha, 0.0, name)
        return steps

    def weighted(
        self, tables: Sequence[int], b: Matrices, out: int, columns: int, waiting: int, alpha: float, name: str, *,
        turned: bool = False,
    ) -> list[Step]:  # fmt: skip
        """out = alpha (the sum of tables) b, or with `turned` of the transposed tables; `b` has so many columns.

        The sum of two tables waits in float32 at `waiting` and is then rounded.
        """
        shape, part, split = self._shape, self._part, len(tables) > 1
        rows_out = shape.s if turned else shape.t
        offset = part.start * shape.rest * rows_out * columns
        target = contiguous_matrices(
            waiting if split else out, part.batch, rows_out, columns, 0 if split else offset
        )  # fmt: skip
        kind = dtypes.float32 if split else self._dtype
        steps: list[Step] = []
        # The last band sees all keys, so that its product comes before what is added to it.
        for band in reversed(self._bands) if turned else self._bands:
            for table in tables:
                weights = self._table(table, band)
                if turned:
                    self._add(
                        steps, band.keys, columns, band.rows, weights.transposed, b.from_row(band.first), target, kind, alpha,
                        float(bool(steps)), name,
                    )  # fmt: skip
                else:
                    self._add(
                        steps, band.rows, columns, band.keys, weights, b, target.from_row(band.first), kind, alpha,
                        float(table != tables[0]), name,
                    )  # fmt: skip
        return [*steps, self._rounded(out, rows_out, columns, offset, waiting)] if split else steps

    def _rounded(self, out: int, rows_out: int, columns: int, offset: int, waiting: int) -> Step:
        shape = (self._part.count, rows_out, columns)
        wide = contiguous(dtypes.float32, shape)
        narrow = contiguous(self._dtype, shape)._replace(aligned=offset % ALIGNMENT == 0)
        copy = copy_launch(self._runtime, wide, narrow)

        def finish(*args: Any) -> None:
            result = args[out]
            copy(Ref(args[waiting], wide), Ref(result.handle, narrow, result.offset + offset))

        return finish


def _attention(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    q, k, v, mask = inputs
    refusal = _refusal((q, k, v), mask)
    if refusal:
        return Declined(refusal)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    shape = _arrange((q, k, v), mask, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    real = _real(q.dtype)
    bands = shape.bands(bool(params["causal"]))
    between = _Rows(runtime, shape, q.dtype, mask, bool(params["causal"]), bands[0].rows)
    if between.split and not outputs[0].aligned:
        return Declined("an output that is not aligned")
    addresses, scores, high, low, waiting = range(6, 11)
    handed = (high, low) if between.split else ()
    parts = _parts(shape, real.itemsize)
    steps: list[Step] = []
    entries = 0
    for part in parts:
        products = _Products(runtime, shape, bands, part, q.dtype, addresses)
        to_q, to_k, to_v = (_operand(i, o, shape.batch_strides[i], part) for i, o in enumerate((q, k, v)))
        middle = between.launch("attention_softmax", part, (scores,), 3, 5, handed)
        if isinstance(middle, Declined):
            return middle
        made: list[Step] = [
            *products.scores(scores, to_q, to_k, d, params["scale"], "attention.scores"), middle,
            *products.weighted(handed or (scores,), to_v, 4, e, waiting, 1.0, "attention.values"),
        ]  # fmt: skip
        if products.failed:
            return Declined(_UNWALKABLE)
        steps += [*products.table.fill(), *made]
        entries = max(entries, products.table.nbytes)
    elements = parts[0].count * t * s
    halves = (elements * q.dtype.itemsize,) * 2 + (parts[0].count * t * e * 4,) if between.split else ()
    return LaunchSequence("attention", steps, (max(entries, 1), elements * real.itemsize, *halves))


def _attention_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    g, q, k, v, mask, _, lse = inputs
    refusal = _refusal((q, k, v, g), mask)
    if refusal:
        return Declined(refusal)
    assert isinstance(g, Spec)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    real = _real(q.dtype)
    if not isinstance(lse, Spec) or lse.dtype is not real or not lse.is_contiguous:
        return Declined("a logsumexp of an unexpected dtype or layout")
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    shape = _arrange((g, q, k, v), mask, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    bands = shape.bands(bool(params["causal"]))
    between = _Rows(runtime, shape, q.dtype, mask, bool(params["causal"]), bands[0].rows)
    if between.split and not all(o.aligned for o in outputs):
        return Declined("an output that is not aligned")
    dq, dk, dv = range(7, 10)
    addresses, scores, slopes, p_high, p_low, d_high, d_low, waiting = range(10, 18)
    handed = (p_high, p_low, d_high, d_low) if between.split else ()
    p, ds = handed[:2] or (scores,), handed[2:] or (slopes,)
    parts = _parts(shape, real.itemsize)
    scale = params["scale"]
    steps: list[Step] = []
    entries = 0
    for part in parts:
        products = _Products(runtime, shape, bands, part, q.dtype, addresses)
        to_g, to_q, to_k, to_v = (_operand(i, o, shape.batch_strides[i], part) for i, o in enumerate((g, q, k, v)))
        middle = between.launch("attention_softmax_grad", part, (scores, slopes), 4, 6, handed)
        if isinstance(middle, Declined):
            return middle
        made: list[Step] = [
            *products.scores(scores, to_q, to_k, d, scale, "attention.scores"),
            *products.scores(slopes, to_g, to_v, e, 1.0, "attention.slopes"), middle,
            *products.weighted(p, to_g, dv, e, waiting, 1.0, "attention.dv", turned=True),
            *products.weighted(ds, to_q, dk, d, waiting, scale, "attention.dk", turned=True),
            *products.weighted(ds, to_k, dq, d, waiting, scale, "attention.dq"),
        ]  # fmt: skip
        if products.failed:
            return Declined(_UNWALKABLE)
        steps += [*products.table.fill(), *made]
        entries = max(entries, products.table.nbytes)
    elements = parts[0].count * t * s
    halves = (
        (elements * q.dtype.itemsize,) * 4 + (parts[0].count * max(t * d, s * d, s * e) * 4,) if between.split else ()
    )
    return LaunchSequence("attention_grad", steps, (max(entries, 1), *(elements * real.itemsize,) * 2, *halves))


LOWERINGS: dict[str, LoweringFunction] = {"attention": _attention, "attention_grad": _attention_grad}
