"""Reading and adding by index: rows of tables, elements along an axis, and NumPy's bracket notation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.movement import broadcast_to, moveaxis, permute, reshape, slice_
from polyhal.hal.ops.opdef import (
    CoreCall,
    CoreInput,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
)
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.protocol import ComputeBackend

_INDEX = (dtypes.int32, dtypes.int64)


def _pair(specs: Specs) -> tuple[Spec, Spec]:
    x, index = specs[:2]
    assert isinstance(x, Spec)
    assert isinstance(index, Spec)
    if not index.dtype.is_integral:
        raise TypeError(f"the index is {index.dtype.name}; expected integers")
    return x, index


def _index_input(index: Spec) -> CoreInput:
    dtype = index.dtype if index.dtype in _INDEX else dtypes.int64
    return CoreInput(dtype, (index.size,), exact=True)


# --- rows -----------------------------------------------------------------------------------------------------------


def _embedding(weight: Any, index: Any) -> Any:
    """Rows of `weight` (R, W) by number: index (...) to (..., W). A number outside 0..R-1 gives zeros."""
    weight, index = np.asarray(weight), np.asarray(index)
    inside = (index >= 0) & (index < len(weight))
    if not len(weight):
        return np.zeros((*index.shape, weight.shape[1]), weight.dtype)
    return np.where(inside[..., None], weight[np.where(inside, index, 0)], weight.dtype.type(0))


def _infer_embedding(specs: Specs, params: dict[str, Any]) -> list[Output]:
    weight, index = _pair(specs)
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {weight.shape}; expected (rows, width)")
    return [(weight.dtype, (*index.shape, weight.shape[1]))]


def _gather_core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    weight, index = _pair(specs)
    inputs = (CoreInput(weight.dtype, weight.shape, exact=True), _index_input(index))
    return CoreCall(
        "gather", lambda w, i, out: backend.gather(i, w, out), inputs, weight.dtype, (index.size, weight.shape[1]), True
    )


def _embedding_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((rng.uniform(-1, 1, (rows, width)), rng.integers(0, rows, shape)))
        for rows, width, shape in [(5, 3, (7,)), (9, 33, (2, 3)), (4, 1, ()), (3, 4, (0,)), (6, 64, (65,))]
    ] + [Sample((rng.uniform(-1, 1, (3, 2)), np.array([0, 3, -1, 2])), special=True)]


embedding = declare(
    _embedding,
    name="embedding",
    family="indexing",
    infer=_infer_embedding,
    core=_gather_core,
    samples=_embedding_samples,
    gradient=lambda g, index, weight_spec: (scatter_rows(g, index, weight_spec.shape[0]), None),
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros(2)), {}, ValueError, "expected integers")],
)


def _scatter_rows(src: Any, index: Any, *, rows: int) -> Any:
    """A table of `rows` rows in which `src[i]` (..., W) is added to row `index[i]`; numbers outside are skipped."""
    src, index = np.asarray(src), np.asarray(index).reshape(-1)
    out = np.zeros((rows, src.shape[-1]), src.dtype)
    inside = (index >= 0) & (index < rows)
    np.add.at(out, index[inside], src.reshape(len(index), src.shape[-1])[inside])
    return out


def _infer_scatter_rows(specs: Specs, params: dict[str, Any]) -> list[Output]:
    src, index = _pair(specs)
    if src.shape[:-1] != index.shape or src.ndim < 1:
        raise ValueError(f"src {src.shape} does not fit index {index.shape}; expected {(*index.shape, 'width')}")
    return [(src.dtype, (params["rows"], src.shape[-1]))]


def _scatter_core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    src, index = _pair(specs)

    def run(s: Any, i: Any, out: Any) -> None:
        backend.fill(0, out)
        backend.scatter_add(i, s, out)

    inputs = (
        CoreInput(
            dtypes.accumulator(src.dtype) if src.dtype.kind == "float" else src.dtype, (index.size, src.shape[-1])
        ),
        _index_input(index),
    )
    assert inputs[0] is not None
    return CoreCall("scatter_add", run, inputs, inputs[0].dtype, outputs[0].shape)


def _repeats(specs: Specs, params: Params) -> int:
    """An index may name one row every time."""
    index = specs[1]
    assert isinstance(index, Spec)
    return index.size


scatter_rows: OpFunction = declare(
    _scatter_rows,
    name="scatter_rows",
    family="indexing",
    public=False,
    infer=_infer_scatter_rows,
    core=_scatter_core,
    gradient=lambda g, index: (embedding(g, index), None),
    settings=("deterministic",),
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(1.0, terms=_repeats),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (*shape, width)), rng.integers(0, rows, shape)), {"rows": rows})
        for rows, width, shape in [(5, 3, (7,)), (9, 33, (2, 3)), (4, 1, ()), (3, 4, (0,)), (2, 64, (65,))]
    ],
)

# --- elements along an axis -----------------------------------------------------------------------------------------


def _take_along_axis(x: Any, index: Any, *, axis: int) -> Any:
    """Elements of `x` along `axis` by number; `index` has the shape of the result, which differs from `x` only there."""
    return np.take_along_axis(np.asarray(x), np.asarray(index), axis)


def _infer_along(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, index = _pair(specs)
    axis = normalize_axis(params["axis"], x.ndim)
    if index.ndim != x.ndim or any(
        a != b for i, (a, b) in enumerate(zip(x.shape, index.shape, strict=True)) if i != axis
    ):
        raise ValueError(f"x {x.shape} and index {index.shape} differ outside axis {axis}")
    params["axis"] = axis
    return [(x.dtype, index.shape)]


def _flat_positions(index: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Row-major positions in a tensor of `shape` of the elements that `index` names along `axis`."""
    total = None
    step = 1
    for i in reversed(range(len(shape))):
        if i == axis:
            wide = index.cast(dtype=dtypes.int64)
            part = where(less(wide, 0), wide + shape[i], wide)
        else:
            lengths = tuple(index.shape[i] if k == i else 1 for k in range(len(shape)))
            part = reshape(arange(0, index.shape[i], 1, dtypes.int64), lengths)
        part = part * step if step != 1 else part
        total = part if total is None else total + part
        step *= shape[i]
    return broadcast_to(total, index.shape)


def _take_along_decomposed(x: Any, index: Any, *, axis: int) -> Any:
    positions = reshape(_flat_positions(index, x.shape, axis), (-1,))
    return reshape(embedding(reshape(x, (-1, 1)), positions), index.shape)


def _along_samples(rng: np.random.Generator) -> list[Sample]:
    cases = [((4, 5), (4, 2), 1), ((4, 5), (6, 5), 0), ((2, 3, 4), (2, 3, 1), -1), ((7,), (3,), 0), ((3, 4), (3, 0), 1)]
    return [Sample((rng.uniform(-1, 1, s), rng.integers(0, s[a], i)), {"axis": a}) for s, i, a in cases]


take_along_axis = declare(
    _take_along_axis,
    name="take_along_axis",
    family="indexing",
    infer=_infer_along,
    decompose=_take_along_decomposed,
    gradient=lambda g, index, x_spec, *, axis: (scatter_along_axis(g, index, axis, x_spec.shape[axis]), None),
    samples=_along_samples,
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
    widen=False,
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((3, 3), int)), {"axis": 1}, ValueError, "differ outside axis 1")],
)


def _scatter_along_axis(src: Any, index: Any, *, axis: int, length: int) -> Any:
    """Zeros with `length` elements along `axis`, to which `src` is added where `index` says: the reverse of taking."""
    src, index = np.asarray(src), np.asarray(index)
    axis = axis % src.ndim
    out = np.zeros((*src.shape[:axis], length, *src.shape[axis + 1 :]), src.dtype)
    grids = list(np.meshgrid(*[np.arange(n) for n in index.shape], indexing="ij", sparse=True))
    grids[axis] = index
    np.add.at(out, tuple(grids), src)
    return out


def _infer_scatter_along(specs: Specs, params: dict[str, Any]) -> list[Output]:
    src, index = _pair(specs)
    axis = normalize_axis(params["axis"], src.ndim)
    if index.shape != src.shape:
        raise ValueError(f"src {src.shape} and index {index.shape}; expected equal shapes")
    params["axis"] = axis
    return [(src.dtype, (*src.shape[:axis], params["length"], *src.shape[axis + 1 :]))]


def _scatter_along_decomposed(src: Any, index: Any, *, axis: int, length: int) -> Any:
    shape = (*src.shape[:axis], length, *src.shape[axis + 1 :])
    positions = reshape(_flat_positions(index, shape, axis), (-1,))
    return reshape(scatter_rows(reshape(src, (-1, 1)), positions, math.prod(shape)), shape)


scatter_along_axis: OpFunction = declare(
    _scatter_along_axis,
    name="scatter_along_axis",
    family="indexing",
    public=False,
    infer=_infer_scatter_along,
    decompose=_scatter_along_decomposed,
    settings=("deterministic",),
    gradient=lambda g, index, *, axis, length: (take_along_axis(g, index, axis), None),
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(1.0, terms=_repeats),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, s), rng.integers(0, n, s)), {"axis": a, "length": n})
        for s, a, n in [((4, 5), 1, 3), ((6, 5), 0, 4), ((7,), 0, 3), ((2, 3, 2), 1, 2)]
    ],
)


@composite()
def take(x: Any, index: Any, axis: int = 0) -> Any:
    """The slices of `x` along `axis` that integer tensor `index` numbers: its axes replace `axis`. Negative numbers wrap."""
    axis = normalize_axis(axis, x.ndim)
    length = x.shape[axis]
    front = moveaxis(x, axis, 0)
    rest = front.shape[1:]
    rows = embedding(reshape(front, (length, math.prod(rest))), where(less(index, 0), index + length, index))
    out = reshape(rows, (*index.shape, *rest))
    if axis == 0:
        return out
    k = index.ndim
    order = (*range(k, k + axis), *range(k), *range(k + axis, out.ndim))
    return permute(out, order)


# --- brackets -------------------------------------------------------------------------------------------------------


def basic_index(x: Any, items: tuple[Any, ...]) -> Any:
    """`x[items]` for integers, slices, None and an ellipsis, as views. Raises IndexError for what does not fit."""
    taken = sum(1 for item in items if item is not None and item is not Ellipsis)
    if taken > x.ndim:
        raise IndexError(f"[getitem] {taken} indices for a tensor of {x.ndim} axes")
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise IndexError("[getitem] more than one ellipsis")
    if Ellipsis not in items:
        items = (*items, Ellipsis)
    starts, lengths, steps, shape = [], [], [], []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        if item is Ellipsis:
            for _ in range(x.ndim - taken):
                starts.append(0)
                lengths.append(x.shape[axis])
                steps.append(1)
                shape.append(x.shape[axis])
                axis += 1
            continue
        n = x.shape[axis]
        if isinstance(item, slice):
            begin, stop, step = item.indices(n)
            length = len(range(begin, stop, step))
            starts.append(begin if length else 0)
            lengths.append(length)
            steps.append(step)
            shape.append(length)
        else:
            i = int(item)
            if not -n <= i < n:
                raise IndexError(f"[getitem] index {i} is out of range for axis {axis} of length {n}")
            starts.append(i % n)
            lengths.append(1)
            steps.append(1)
        axis += 1
    out = (
        slice_(x, tuple(starts), tuple(lengths), tuple(steps))
        if tuple(lengths) != x.shape or any(s != 1 for s in steps)
        else x
    )
    return reshape(out, tuple(shape)) if out.shape != tuple(shape) else out
