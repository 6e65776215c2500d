"""`add_rows`: rows of a table with rows of another added, by number; and the common parts of such updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    CoreCall,
    CoreInput,
    CoreMember,
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    Trait,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.rows import embedding, index_input, index_size, scatter_rows, tensor_and_index
from polyhal.hal.ops.layout.views import contiguous, reshape
from polyhal.hal.ops.pointwise.logic import greater_equal, less
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import ComputeBackend

if TYPE_CHECKING:
    from polyhal.hal.layout import Ref


def infer_update(specs: Specs, params: dict[str, Any]) -> list[Output]:
    """Return the dtype and shape of a table (rows, width) after an update. Raises ValueError for operands that do not fit."""
    (x, index), src = tensor_and_index(specs), tensor_at(specs, 2)
    if x.ndim != 2 or index.ndim != 1 or src.shape != (index.size, x.shape[1]) or src.dtype is not x.dtype:
        raise ValueError(
            f"x {x.dtype.name}{x.shape}, index {index.shape} and src {src.dtype.name}{src.shape}; "
            "expected (rows, width), (n,) and (n, width)"
        )
    return [(x.dtype, x.shape)]


def reference(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reference of an op that combines each named row with rows of the source, in the order of the index."""

    def update(x: Array, index: Array, src: Array) -> Any:
        out, src = np.array(x), np.asarray(src)
        for i, row in enumerate(np.asarray(index).tolist()):
            if 0 <= row < len(out):
                out[row] = combine(out[row], src[i])
        return out

    return update


def update_samples(rng: np.random.Generator, low: int = -1) -> list[Sample]:
    """Return updates of a few rows, some of them named several times, by numbers from `low`."""
    cases = [(4, 3, 6), (6, 1, 9), (3, 2, 1), (2, 2, 0), (300, 2, 200)]
    return [
        Sample((rng.uniform(-2, 2, (rows, width)), rng.integers(low, rows, n), rng.uniform(-2, 2, (n, width))))
        for rows, width, n in cases
    ]


ERRORS = [ErrorSample((np.zeros((2, 3)), np.zeros(2, int), np.zeros((2, 2))), {}, ValueError, "expected .rows, width")]


def rows_or_zeros(x: TensorLike, index: TensorLike) -> Any:
    """Rows by number; zeros for numbers below zero."""
    inside = reshape(greater_equal(index, 0), (-1, 1))
    return where(inside, embedding(x, maximum(index, 0)), 0)


def _add_rows(x: Array, index: Array, src: Array) -> Any:
    """`x` (rows, width) with `src[i]` added to row `index[i]`; numbers outside are skipped."""
    return reference(np.add)(x, index, src)


def _add_to_rows(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    x, index, src = (tensor_at(specs, i) for i in range(3))
    dtype = dtypes.accumulator(x.dtype) if x.dtype.kind == "float" else x.dtype

    def run(old: Ref, i: Ref, s: Ref, out: Ref) -> None:
        if old.handle is not out.handle or old.offset != out.offset:
            backend.copy(old, out)
        backend.scatter_add(i, s, out)

    inputs = (CoreInput(dtype, x.shape), index_input(index), CoreInput(dtype, src.shape))
    return CoreCall("scatter_add", run, inputs, dtype, x.shape)


def _added(x: TensorLike, index: TensorLike, src: TensorLike) -> Any:
    if 0 in (index.shape[0], *x.shape):
        return contiguous(x)
    inside, numbers, rows = reshape(greater_equal(index, 0), (-1, 1)), maximum(index, 0), x.shape[0]
    named = less(0, scatter_rows(inside.cast(dtype=dtypes.int32), numbers, rows))
    return where(named, x + scatter_rows(where(inside, src, 0), numbers, rows), x)


add_rows: OpFunction = declare(
    _add_rows,
    name="add_rows",
    family="indexing",
    infer=infer_update,
    lowering=(CoreMember(_add_to_rows), Decompose(_added)),
    traits=Trait.INPLACE,
    settings=("deterministic",),
    gradient=(lambda g: g, None, lambda g, index: rows_or_zeros(g, index)),
    samples=lambda rng: update_samples(rng),
    errors=ERRORS,
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    public=False,
    tolerance=Tolerance(1.0, terms=index_size),
)
