"""Elements along one axis by index: `take_along_axis`, and `scatter_along_axis`, which adds them back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    IndexRange,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    reads,
    tensor_at,
)
from polyhal.hal.ops.indexing.add_rows import add_rows
from polyhal.hal.ops.indexing.rows import embedding, index_size, scatter_rows, tensor_and_index
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike

if TYPE_CHECKING:
    from polyhal.hal.layout import Spec


def _take_along_axis(x: Array, index: Array, *, axis: int) -> Any:
    """Elements of `x` along `axis` by number; `index` has the shape of the result, which differs from `x` only there."""
    return np.take_along_axis(np.asarray(x), np.asarray(index), axis)


def _infer_take(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, index = tensor_and_index(specs)
    axis = normalize_axis(params["axis"], x.ndim)
    if index.ndim != x.ndim or _without(x.shape, axis) != _without(index.shape, axis):
        raise ValueError(f"x {x.shape} and index {index.shape} differ outside axis {axis}")
    params["axis"] = axis
    return [(x.dtype, index.shape)]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _flat_positions(index: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Row-major positions, in a tensor of `shape`, of the elements that `index` names along `axis`."""
    total = None
    step = 1
    for i in reversed(range(len(shape))):
        if i == axis:
            wide = index.cast(dtype=dtypes.int64)
            along = where(less(wide, 0), wide + shape[i], wide)
        else:
            lengths = tuple(index.shape[i] if k == i else 1 for k in range(len(shape)))
            along = reshape(arange(0, index.shape[i], 1, dtypes.int64), lengths)
        along = along * step if step != 1 else along
        total = along if total is None else total + along
        step *= shape[i]
    return broadcast_to(total, index.shape)


def _take_range(specs: Specs, params: Params) -> IndexRange:
    length = tensor_at(specs, 0).shape[params["axis"]]
    return IndexRange(1, -length, length)


def _take_decomposed(x: TensorLike, index: TensorLike, *, axis: int) -> Any:
    positions = reshape(_flat_positions(index, x.shape, axis), (-1,))
    return reshape(embedding(reshape(x, (-1, 1)), positions), index.shape)


def _take_samples(rng: np.random.Generator) -> list[Sample]:
    cases = [((4, 5), (4, 2), 1), ((4, 5), (6, 5), 0), ((2, 3, 4), (2, 3, 1), -1), ((7,), (3,), 0), ((3, 4), (3, 0), 1)]
    return [Sample((rng.uniform(-1, 1, s), rng.integers(0, s[a], i)), {"axis": a}) for s, i, a in cases]


take_along_axis = declare(
    _take_along_axis,
    name="take_along_axis",
    family="indexing",
    infer=_infer_take,
    lowering=Decompose(_take_decomposed, widen=False),
    gradient=lambda g, index, x_spec, *, axis: (scatter_along_axis(g, index, None, axis, x_spec.shape[axis]), None),
    index_range=_take_range,
    samples=_take_samples,
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((3, 3), int)), {"axis": 1}, ValueError, "differ outside axis 1")],
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
)


def _scatter_along_axis(src: Array, index: Array, base: Array | None = None, *, axis: int = 0, length: int = 0) -> Any:
    """`base`, or zeros, of `length` along `axis`, with `src` added at the positions that `index` names."""
    src, index = np.asarray(src), np.asarray(index)
    axis = axis % src.ndim
    shape = (*src.shape[:axis], length, *src.shape[axis + 1 :])
    out = np.zeros(shape, src.dtype) if base is None else np.array(base)
    grids = list(np.meshgrid(*[np.arange(n) for n in index.shape], indexing="ij", sparse=True))
    grids[axis] = index
    np.add.at(out, tuple(grids), src)
    return out


def _infer_scatter(specs: Specs, params: dict[str, Any]) -> list[Output]:
    src, index = tensor_and_index(specs)
    axis = normalize_axis(params["axis"], src.ndim)
    if index.shape != src.shape:
        raise ValueError(f"src {src.shape} and index {index.shape}; expected equal shapes")
    params["axis"] = axis
    shape = (*src.shape[:axis], params["length"], *src.shape[axis + 1 :])
    if specs[2] is not None and (tensor_at(specs, 2).shape, tensor_at(specs, 2).dtype) != (shape, src.dtype):
        base = tensor_at(specs, 2)
        raise ValueError(f"base {base.dtype.name} {base.shape}; expected {src.dtype.name} {shape}")
    return [(src.dtype, shape)]


def _scatter_decomposed(src: TensorLike, index: TensorLike, base: Any, *, axis: int, length: int) -> Any:
    shape = (*src.shape[:axis], length, *src.shape[axis + 1 :])
    positions, column = reshape(_flat_positions(index, shape, axis), (-1,)), reshape(src, (-1, 1))
    if base is not None:
        return reshape(add_rows(reshape(base, (-1, 1)), positions, column), shape)
    return reshape(scatter_rows(column, positions, math.prod(shape)), shape)


@reads(base="")
def _scatter_gradient(
    g: TensorLike, index: TensorLike | None, base_spec: Spec | None, needs: tuple[bool, ...], *, axis: int, length: int
) -> Any:
    return take_along_axis(g, index, axis) if needs[0] else None, None, None if base_spec is None else g


def _scatter_samples(rng: np.random.Generator) -> list[Sample]:
    results = []
    for shape, axis, length in [((4, 5), 1, 3), ((6, 5), 0, 4), ((7,), 0, 3), ((2, 3, 2), 1, 2)]:
        src, index = rng.uniform(-1, 1, shape), rng.integers(0, length, shape)
        base = rng.uniform(-1, 1, (*shape[:axis], length, *shape[axis + 1 :]))
        results += [Sample((src, index, b), {"axis": axis, "length": length}) for b in (None, base)]
    return results


scatter_along_axis: OpFunction = declare(
    _scatter_along_axis,
    name="scatter_along_axis",
    family="indexing",
    infer=_infer_scatter,
    lowering=Decompose(_scatter_decomposed),
    settings=("deterministic",),
    public=False,
    index_range=lambda specs, params: IndexRange(1, -params["length"], params["length"]),
    gradient=_scatter_gradient,
    samples=_scatter_samples,
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(1.0, terms=index_size),
)
