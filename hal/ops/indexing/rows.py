"""Rows of a table by index: `embedding` reads them, `scatter_rows` adds to them, `take` indexes any axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, normalize_axis
from polyhal.hal.ops.batching import BatchedCall
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.declare import (
    CoreCall,
    CoreInput,
    CoreMember,
    ErrorSample,
    IndexRange,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.range_errors import names_range_errors
from polyhal.hal.ops.layout.axes import moveaxis
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import ComputeBackend

if TYPE_CHECKING:
    from polyhal.hal.layout import Ref

_INDEX_DTYPES = (dtypes.int32, dtypes.int64)


def tensor_and_index(specs: Specs) -> tuple[Spec, Spec]:
    """The first two inputs. Raises TypeError unless the second holds integers."""
    x, index = tensor_at(specs, 0), tensor_at(specs, 1)
    if not index.dtype.is_integral:
        raise TypeError(f"the index is {index.dtype.name}; expected integers")
    return x, index


def index_size(specs: Specs, params: Params) -> int:
    """The most terms that a scattered sum can have: an index may name one row every time."""
    return tensor_at(specs, 1).size


def index_input(index: Spec) -> CoreInput:
    """Return the form of an index for a core member: a vector, in a dtype of indices."""
    return CoreInput(index.dtype if index.dtype in _INDEX_DTYPES else dtypes.int64, (index.size,), exact=True)


def _embedding(weight: Array, index: Array) -> Any:
    """Rows of `weight` (R, W) by number: index (...) to (..., W).

    A number outside 0..R-1 raises IndexError on CPUs and in debug mode (`polyhal.debug`), and gives zeros elsewhere.
    """
    weight, index = np.asarray(weight), np.asarray(index)
    inside = (index >= 0) & (index < len(weight))
    if not len(weight):
        return np.zeros((*index.shape, weight.shape[1]), weight.dtype)
    return np.where(inside[..., None], weight[np.where(inside, index, 0)], weight.dtype.type(0))


def _infer_embedding(specs: Specs, params: Params) -> list[Output]:
    weight, index = tensor_and_index(specs)
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {weight.shape}; expected (rows, width)")
    return [(weight.dtype, (*index.shape, weight.shape[1]))]


def _gather(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    weight, index = tensor_and_index(specs)
    inputs = (CoreInput(weight.dtype, weight.shape, exact=True), index_input(index))
    return CoreCall(
        "gather", lambda w, i, out: backend.gather(i, w, out), inputs, weight.dtype, (index.size, weight.shape[1]), True
    )


def _embedding_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((rng.uniform(-1, 1, (rows, width)), rng.integers(0, rows, shape)))
        for rows, width, shape in [(5, 3, (7,)), (9, 33, (2, 3)), (4, 1, ()), (3, 4, (0,)), (6, 64, (65,))]
    ] + [Sample((rng.uniform(-1, 1, (3, 2)), np.array([0, 3, -1, 2])), special=True)]


def _batched_embedding(call: BatchedCall) -> Any:
    """One table of all rows; numbers outside of their own table stay outside of it."""
    weight, index = call.inputs
    if not call.batched[0]:
        return call.apply(weight, index)
    rows, width = call.shape(0)
    table = reshape(weight, (call.size * rows, width))
    return call.apply(table, _row_of_batch(call, 1, rows))


def _row_of_batch(call: BatchedCall, i: int, rows: int) -> Any:
    """Row numbers of input `i` in a table of all batches; -1 for those outside of their own."""
    index = call.expanded(i)
    first = reshape(call.numbers(i), (call.size, *(1,) * call.rank(i))) * rows
    return where(less(index, 0), -1, where(less(index, rows), index + first, -1))


embedding = declare(
    _embedding,
    name="embedding",
    family="indexing",
    infer=_infer_embedding,
    lowering=CoreMember(_gather),
    batching=_batched_embedding,
    gradient=lambda g, index, weight_spec: (scatter_rows(g, index, weight_spec.shape[0]), None),
    index_range=lambda specs, params: IndexRange(1, 0, tensor_at(specs, 0).shape[0]),
    samples=_embedding_samples,
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros(2)), {}, ValueError, "expected integers")],
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
)


def _scatter_rows(src: Array, index: Array, *, rows: int) -> Any:
    """A table of `rows` rows in which `src[i]` (..., W) is added to row `index[i]`; numbers outside are skipped."""
    src, index = np.asarray(src), np.asarray(index).reshape(-1)
    out = np.zeros((rows, src.shape[-1]), src.dtype)
    inside = (index >= 0) & (index < rows)
    np.add.at(out, index[inside], src.reshape(len(index), src.shape[-1])[inside])
    return out


def _infer_scatter_rows(specs: Specs, params: Params) -> list[Output]:
    src, index = tensor_and_index(specs)
    if src.shape[:-1] != index.shape or src.ndim < 1:
        raise ValueError(f"src {src.shape} does not fit index {index.shape}; expected {(*index.shape, 'width')}")
    return [(src.dtype, (params["rows"], src.shape[-1]))]


def _scatter_add(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    src, index = tensor_and_index(specs)
    dtype = dtypes.accumulator(src.dtype) if src.dtype.kind == "float" else src.dtype

    def run(s: Ref, i: Ref, out: Ref) -> None:
        backend.fill(0, out)
        backend.scatter_add(i, s, out)

    inputs = (CoreInput(dtype, (index.size, src.shape[-1])), index_input(index))
    return CoreCall("scatter_add", run, inputs, dtype, outputs[0].shape)


def _batched_scatter_rows(call: BatchedCall) -> Any:
    rows = call.params["rows"]
    out = call.apply(call.expanded(0), _row_of_batch(call, 1, rows), rows=call.size * rows)
    return reshape(out, (call.size, rows, out.shape[-1]))


scatter_rows: OpFunction = declare(
    _scatter_rows,
    name="scatter_rows",
    family="indexing",
    infer=_infer_scatter_rows,
    lowering=CoreMember(_scatter_add),
    batching=_batched_scatter_rows,
    settings=("deterministic",),
    public=False,
    gradient=lambda g, index: (embedding(g, index), None),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (*shape, width)), rng.integers(0, rows, shape)), {"rows": rows}, note=note)
        for rows, width, shape, note in [
            (5, 3, (7,), ""),
            (9, 33, (2, 3), ""),
            (4, 1, (), ""),
            (3, 4, (0,), ""),
            (2, 64, (65,), ""),
            (5, 1, (3000,), "many sums into few rows"),
        ]
    ],
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(1.0, terms=index_size),
)


@composite(returns=Returns.COPY)
@names_range_errors
def take(x: TensorLike, index: Any, axis: int | None = 0) -> Any:
    """The slices of `x` along `axis` that the integer tensor `index` names; its axes replace `axis`. Negative ones wrap.

    With None for the axis, elements in row-major order.

    >>> polyhal.take(polyhal.tensor([5, 6, 7]), polyhal.tensor([2, 0])).tolist()
    [7, 5]
    """
    if axis is None:
        x, axis = reshape(x, (math.prod(x.shape),)), 0
    return slices_at(x, index, axis)


def slices_at(x: TensorLike, index: TensorLike, axis: int, *, from_end: bool = True) -> Any:
    """Return the result of `take`, for callers that only read it: the axes of `index` come first in its memory.

    Negative indices count from the end, or are out of range unless `from_end`.
    """
    axis = normalize_axis(axis, x.ndim)
    length = x.shape[axis]
    front = moveaxis(x, axis, 0)
    rest = front.shape[1:]
    position = where(less(index, 0), index + length, index) if from_end else index
    rows = embedding(reshape(front, (length, math.prod(rest))), position)
    out = reshape(rows, (*index.shape, *rest))
    if axis == 0:
        return out
    k = index.ndim
    return permute(out, (*range(k, k + axis), *range(k), *range(k + axis, out.ndim)))
