"""Tensors from nothing: constants and sequences."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.layout import Spec, View, contiguous_strides
from polyhal.hal.ops.opdef import OPS, OpDef, Output, Params, Piece, Sample, Specs, Tolerance
from polyhal.hal.ops.traits import Trait

_EMPTY = inspect.Parameter.empty


def _infer_full(specs: Specs, params: dict[str, Any]) -> list[Output]:
    shape = params["shape"]
    shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape} has a negative length")
    value = params["value"]
    default = (
        dtypes.bool_
        if isinstance(value, bool)
        else dtypes.DEFAULT_INT
        if isinstance(value, int)
        else dtypes.DEFAULT_FLOAT
    )
    params.update(shape=shape, dtype=default if params["dtype"] is None else as_dtype(params["dtype"]))
    return [(params["dtype"], shape)]


def _np_full(*, shape: Any, value: Any, dtype: Any = None) -> Any:
    return np.full(shape, value, None if dtype is None else as_dtype(dtype).numpy)


def _assemble_full(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[Piece]:
    return [Piece(View(outputs[0].shape, contiguous_strides(outputs[0].shape)), value=params["value"])]


full = OPS.declare(
    OpDef(
        name="full",
        family="creation",
        doc="A tensor of `shape` filled with a number.",
        inputs=(),
        optional=frozenset(),
        variadic=False,
        params={"shape": _EMPTY, "value": _EMPTY, "dtype": None},
        outputs=("out",),
        infer=_infer_full,
        reference=_np_full,
        assemble=_assemble_full,
        constant=lambda params: np.full(params["shape"], params["value"], params["dtype"].numpy),
        samples=lambda rng: [
            Sample((), {"shape": s, "value": v, "dtype": d})
            for s in [(), (0,), (3, 5)]
            for v, d in [(1.5, dtypes.float32), (True, dtypes.bool_), (-7, dtypes.int32)]
        ],
        tolerance=Tolerance(0.0),
        traits=Trait.CREATION,
    )
)


def _infer_arange(specs: Specs, params: dict[str, Any]) -> list[Output]:
    start, stop, step = params["start"], params["stop"], params["step"]
    if step == 0:
        raise ValueError("step 0; expected a number other than 0")
    if params["dtype"] is None:
        params["dtype"] = (
            dtypes.DEFAULT_INT if all(isinstance(v, int) for v in (start, stop, step)) else dtypes.DEFAULT_FLOAT
        )
    params["dtype"] = as_dtype(params["dtype"])
    return [(params["dtype"], (max(0, math.ceil((stop - start) / step)),))]


def _np_arange(*, start: Any, stop: Any, step: Any = 1, dtype: Any = None) -> Any:
    out = start + step * np.arange(max(0, math.ceil((stop - start) / step)))
    return out if dtype is None else out.astype(as_dtype(dtype).numpy)


arange = OPS.declare(
    OpDef(
        name="arange",
        family="creation",
        doc="Evenly spaced numbers from `start` up to, not including, `stop`.",
        inputs=(),
        optional=frozenset(),
        variadic=False,
        params={"start": _EMPTY, "stop": _EMPTY, "step": 1, "dtype": None},
        outputs=("out",),
        infer=_infer_arange,
        reference=_np_arange,
        constant=lambda params: _np_arange(**params),
        samples=lambda rng: [
            Sample((), {"start": 0, "stop": 7, "step": 1, "dtype": dtypes.int32}),
            Sample((), {"start": 5, "stop": -3, "step": -2, "dtype": dtypes.int64}),
            Sample((), {"start": 0.5, "stop": 2.0, "step": 0.25, "dtype": dtypes.float32}),
            Sample((), {"start": 3, "stop": 3, "step": 1, "dtype": dtypes.float32}),
        ],
        tolerance=Tolerance(1.0),
        traits=Trait.CREATION,
    )
)
