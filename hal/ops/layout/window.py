"""Windows of a tensor's memory, read and replaced: what indexing and in-place changes become when a step is captured.

A window is given by shape, strides and offset, in elements of a contiguous tensor's memory. Compare PyTorch's
`as_strided` and `as_strided_scatter`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, View, contiguous_strides, extent
from polyhal.hal.ops.batching import BatchedCall
from polyhal.hal.ops.declare import (
    AsView,
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    OutputRegion,
    Params,
    Regions,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.indexing.rows import scatter_rows
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.views import contiguous, reshape
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _checked(specs: Specs, params: dict[str, Any]) -> Spec:
    """The spec of the tensor. Raises ValueError if the window reaches beyond its memory."""
    spec = first_tensor(specs)
    params.update(shape=tuple(params["shape"]), strides=tuple(params["strides"]))
    low, high = extent(params["shape"], params["strides"])
    if params["offset"] + low < 0 or params["offset"] + high >= spec.size:
        reach = (params["offset"] + low, params["offset"] + high)
        raise ValueError(f"a window reaches elements {reach[0]} to {reach[1]} of {spec.size}")
    return spec


def _np_window(x: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
    """The window as a NumPy view of a contiguous array."""
    flat = x.reshape(-1)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, tuple(s * flat.itemsize for s in strides))


def _infer_window(specs: Specs, params: dict[str, Any]) -> list[Output]:
    return [(_checked(specs, params).dtype, params["shape"])]


def _window(x: Any, *, shape: Any, strides: Any, offset: Any) -> Any:
    """The elements of `x`'s memory under another layout. A view."""
    return _np_window(np.ascontiguousarray(x), shape, strides, offset).copy()


def _window_gradient(
    g: TensorLike, x_spec: Spec, *, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Any:
    """Zeros with `g` in the window; elements that the window repeats get the sum."""
    if math.prod(shape) == x_spec.size and strides == contiguous_strides(shape):
        return reshape(g, x_spec.shape)
    repeated = tuple(axis for axis, (n, step) in enumerate(zip(shape, strides, strict=True)) if n > 1 and step == 0)
    if repeated:
        g = sum_(g, repeated, keepdims=True)
        shape = tuple(1 if axis in repeated else n for axis, n in enumerate(shape))
    if not overlaps(shape, strides):
        zeros = full(x_spec.shape, 0, x_spec.dtype)
        return overwrite(zeros, g, shape, strides, offset)[0]
    positions = full((), offset, dtypes.int64)
    for axis, (n, step) in enumerate(zip(shape, strides, strict=True)):
        along = arange(0, n, 1, dtypes.int64) * step
        positions = positions + reshape(along, tuple(n if k == axis else 1 for k in range(len(shape))))
    flat = scatter_rows(reshape(g, (-1, 1)), reshape(positions, (-1,)), x_spec.size)
    return reshape(flat, x_spec.shape)


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a layout may reach an element twice. It does not if each step passes over all that shorter steps reach."""
    reach = 0
    for step, n in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if step <= reach:
            return True
        reach += step * (n - 1)
    return False


def _window_view(spec: Spec, params: Params) -> View | None:
    return View(params["shape"], params["strides"], params["offset"]) if spec.is_contiguous else None


def _batched(call: BatchedCall) -> Any:
    """Apply `window` or `overwrite` to a batch, whose tensors follow each other in memory."""
    shape, strides = (tuple(call.params[name]) for name in ("shape", "strides"))
    inputs = [call.expanded(i) for i in range(len(call.inputs))]
    return call.apply(*inputs, shape=(call.size, *shape), strides=(math.prod(call.shape(0)), *strides))


window: OpFunction = declare(
    _window,
    name="window",
    family="movement",
    infer=_infer_window,
    lowering=(
        AsView(_window_view),
        Decompose(lambda x, *, shape, strides, offset: window(contiguous(x), shape, strides, offset)),
    ),
    batching=_batched,
    public=False,
    gradient=_window_gradient,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (4, 6)),), {"shape": (2, 3), "strides": (6, 2), "offset": 7}),
        Sample((rng.uniform(-1, 1, 5),), {"shape": (), "strides": (), "offset": 4}),
        Sample((rng.uniform(-1, 1, 5),), {"shape": (3,), "strides": (-2,), "offset": 4}),
        Sample((rng.uniform(-1, 1, 5),), {"shape": (3, 2), "strides": (1, 1), "offset": 1}),
    ],
    errors=[ErrorSample((np.zeros(4),), {"shape": (2,), "strides": (3,), "offset": 1}, ValueError, "1 to 4 of 4")],
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
)


def _infer_overwrite(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec, value = _checked(specs, params), specs[1]
    if isinstance(value, Spec) and value.shape != params["shape"]:
        raise ValueError(f"a value of shape {value.shape}; expected the window's {params['shape']}")
    return [(spec.dtype, spec.shape)]


def _overwrite(
    x: Array, value: Array | float, *, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> tuple[np.ndarray]:
    """`x` with a window of its memory replaced by a number or a tensor of the window's shape, which is cast."""
    out = np.array(x, order="C")
    _np_window(out, shape, strides, offset)[...] = np.asarray(value).astype(out.dtype)
    return (out,)


def _overwrite_regions(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[OutputRegion]:
    shape = outputs[0].shape
    return [
        OutputRegion(View(shape, contiguous_strides(shape)), 0),
        OutputRegion(View(params["shape"], params["strides"], params["offset"]), 1),
    ]


def _overwrite_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    cases: list[tuple[Any, Any, int, Any]] = [
        ((2, 3), (6, 2), 7, (4, 6)),
        ((5,), (1,), 0, (5,)),
        ((3,), (-2,), 4, (5,)),
    ]
    for shape, strides, offset, whole_shape in cases:
        params = {"shape": shape, "strides": strides, "offset": offset}
        whole = rng.uniform(-1, 1, whole_shape)
        out.append(Sample((whole, rng.uniform(-1, 1, shape)), params, differentiable=False))
        out.append(Sample((whole, 3.0), params, differentiable=False))
    return out


def _overwrite_gradient(
    g: TensorLike,
    needs: tuple[bool, ...],
    x_spec: Spec,
    *,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
) -> Any:
    before = _gradient_before(g, x_spec, shape, strides, offset) if needs[0] else None
    return before, window(g, shape, strides, offset) if needs[1] else None


def _gradient_before(g: TensorLike, x_spec: Spec, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """Return `g` with zeros in the window; zeros, which do not depend on `g`, if the window is the tensor in its own shape."""
    if shape == x_spec.shape and strides == contiguous_strides(shape):
        return full(shape, 0, x_spec.dtype)
    return overwrite(g, 0.0, shape, strides, offset)[0]


overwrite: OpFunction = declare(
    _overwrite,
    name="overwrite",
    family="movement",
    mutates=(0,),
    infer=_infer_overwrite,
    lowering=Regions(_overwrite_regions),
    batching=_batched,
    public=False,
    gradient=_overwrite_gradient,
    samples=_overwrite_samples,
    errors=[
        ErrorSample(
            (np.zeros(4), np.zeros(3)), {"shape": (2,), "strides": (1,), "offset": 0}, ValueError, "the window's"
        )
    ],
    dtypes=(dtypes.float32, dtypes.float16, dtypes.int32, dtypes.bool_),
    tolerance=Tolerance(0.0),
)
