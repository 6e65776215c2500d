"""Parts of a tensor's memory, seen and replaced: what indexing and changes in place become when a step is captured.

A window is given by shape, strides and offset in elements, counted in the memory of a contiguous tensor.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, View, contiguous_strides, extent
from polyhal.hal.ops.layout.movement import contiguous
from polyhal.hal.ops.opdef import OPS, ErrorSample, OpDef, OpFunction, Output, Params, Piece, Sample, Specs, Tolerance

_PARAMS: dict[str, Any] = dict.fromkeys(("shape", "strides", "offset"), inspect.Parameter.empty)


def _checked(spec: Any, params: dict[str, Any]) -> Spec:
    """The spec of the tensor, whose memory must hold the whole window."""
    params.update(shape=tuple(params["shape"]), strides=tuple(params["strides"]))
    low, high = extent(params["shape"], params["strides"])
    if params["offset"] + low < 0 or params["offset"] + high >= spec.size:
        reached = (params["offset"] + low, params["offset"] + high)
        raise ValueError(f"a window reaches elements {reached[0]} to {reached[1]} of {spec.size}")
    return spec  # type: ignore[no-any-return]


def _seen(x: np.ndarray, shape: Any, strides: Any, offset: int) -> np.ndarray:
    flat = x.reshape(-1)
    steps = tuple(s * flat.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)


def _infer_window(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _checked(specs[0], params)
    return [(spec.dtype, params["shape"])]


window: OpFunction = OPS.declare(
    OpDef(
        name="window",
        family="movement",
        doc="The elements of `x`'s memory under another layout. A view.",
        inputs=("x",),
        optional=frozenset(),
        variadic=False,
        params=_PARAMS,
        outputs=("out",),
        public=False,
        infer=_infer_window,
        reference=lambda x, *, shape, strides, offset: _seen(np.ascontiguousarray(x), shape, strides, offset).copy(),
        view=lambda spec, params: (
            View(params["shape"], params["strides"], params["offset"]) if spec.is_contiguous else None
        ),
        decompose=lambda x, *, shape, strides, offset: window(contiguous(x), shape, strides, offset),
        samples=lambda rng: [
            Sample(
                (rng.uniform(-1, 1, (4, 6)),), {"shape": (2, 3), "strides": (6, 2), "offset": 7}, differentiable=False
            ),
            Sample((rng.uniform(-1, 1, 5),), {"shape": (), "strides": (), "offset": 4}, differentiable=False),
            Sample((rng.uniform(-1, 1, 5),), {"shape": (3,), "strides": (-2,), "offset": 4}, differentiable=False),
        ],
        errors=[ErrorSample((np.zeros(4),), {"shape": (2,), "strides": (3,), "offset": 1}, ValueError, "1 to 4 of 4")],
        dtypes=dtypes.ALL,
        tolerance=Tolerance(0.0),
    )
)


def _infer_overwrite(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec, value = _checked(specs[0], params), specs[1]
    if isinstance(value, Spec) and value.shape != params["shape"]:
        raise ValueError(f"a value of shape {value.shape}; expected the window's {params['shape']}")
    return [(spec.dtype, spec.shape)]


def _overwritten(x: Any, value: Any, *, shape: Any, strides: Any, offset: int) -> tuple[np.ndarray]:
    out = np.array(x, order="C")
    _seen(out, shape, strides, offset)[...] = np.asarray(value).astype(out.dtype)
    return (out,)


def _assemble(specs: Specs, outs: tuple[Spec, ...], params: Params) -> list[Piece]:
    shape = outs[0].shape
    return [
        Piece(View(shape, contiguous_strides(shape)), 0),
        Piece(View(params["shape"], params["strides"], params["offset"]), 1),
    ]


def _samples(rng: np.random.Generator) -> list[Sample]:
    found = []
    for shape, strides, offset, of in [((2, 3), (6, 2), 7, (4, 6)), ((5,), (1,), 0, (5,)), ((3,), (-2,), 4, (5,))]:
        params = {"shape": shape, "strides": strides, "offset": offset}
        whole = rng.uniform(-1, 1, of)
        found.append(Sample((whole, rng.uniform(-1, 1, shape)), params, differentiable=False))
        found.append(Sample((whole, 3.0), params, differentiable=False))
    return found


overwrite: OpFunction = OPS.declare(
    OpDef(
        name="overwrite",
        family="movement",
        doc="`x` with a window of its memory replaced by a number or a tensor of the window's shape, which is cast.",
        inputs=("x", "value"),
        optional=frozenset(),
        variadic=False,
        params=_PARAMS,
        outputs=("out",),
        public=False,
        infer=_infer_overwrite,
        reference=_overwritten,
        assemble=_assemble,
        mutates=(0,),
        samples=_samples,
        errors=[
            ErrorSample(
                (np.zeros(4), np.zeros(3)), {"shape": (2,), "strides": (1,), "offset": 0}, ValueError, "the window's"
            )
        ],
        dtypes=(dtypes.float32, dtypes.float16, dtypes.int32, dtypes.bool_),
        tolerance=Tolerance(0.0),
    )
)
