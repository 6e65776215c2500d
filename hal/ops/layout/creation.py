"""Ops that create tensors only from parameters: constants and ranges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import scalar_dtype
from polyhal.hal.core.dispatch.number_range import require_fit
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.layout import Spec, View, contiguous_strides
from polyhal.hal.ops.declare import (
    HostConstant,
    Output,
    OutputRegion,
    Params,
    Regions,
    Sample,
    Specs,
    Tolerance,
    Trait,
    declare,
)
from polyhal.hal.ops.tensor_like import Array


def _infer_full(specs: Specs, params: dict[str, Any]) -> list[Output]:
    shape, dtype = params["shape"], params["dtype"]
    shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape} has a negative length")
    params.update(shape=shape, dtype=scalar_dtype(params["value"]) if dtype is None else as_dtype(dtype))
    require_fit("full", params["value"], params["dtype"])
    return [(params["dtype"], shape)]


def _full(*, shape: tuple[int, ...], value: complex, dtype: DType | None = None) -> Any:
    """A tensor of `shape` filled with a number."""
    return np.full(shape, value, None if dtype is None else as_dtype(dtype).numpy)


def _full_regions(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[OutputRegion]:
    return [OutputRegion(_whole(outputs[0]), value=params["value"])]


def _whole(spec: Spec) -> View:
    return View(spec.shape, contiguous_strides(spec.shape))


full = declare(
    _full,
    name="full",
    family="creation",
    infer=_infer_full,
    lowering=Regions(_full_regions),
    traits=Trait.CREATION,
    samples=lambda rng: [
        Sample((), {"shape": s, "value": v, "dtype": d})
        for s in [(), (0,), (3, 5)]
        for v, d in [(1.5, dtypes.float32), (True, dtypes.bool_), (-7, dtypes.int32)]
    ],
    tolerance=Tolerance(0.0),
)


def _infer_empty(specs: Specs, params: dict[str, Any]) -> list[Output]:
    filled = {**params, "value": 0.0}
    (output,) = _infer_full(specs, filled)
    params.update(shape=filled["shape"], dtype=filled["dtype"])
    return [output]


def _empty(*, shape: Any, dtype: Any = None) -> Any:
    """A tensor of `shape` with uninitialized elements."""
    return np.empty(shape, dtypes.DEFAULT_FLOAT.numpy if dtype is None else as_dtype(dtype).numpy)


empty = declare(
    _empty,
    name="empty",
    family="creation",
    infer=_infer_empty,
    lowering=Regions(lambda specs, outputs, params: []),
    traits=Trait.CREATION | Trait.UNDEFINED,
    public=False,
)


def _infer_broadcast_scalar(specs: Specs, params: Params) -> list[Output]:
    return [(as_dtype(params["dtype"]), tuple(params["shape"]))]


def _broadcast_scalar(value: Array, *, shape: Any, dtype: Any) -> Any:
    """A tensor of `shape` filled with a number that may differ from call to call, where that of `full` is a parameter."""
    return np.full(shape, value, as_dtype(dtype).numpy)


broadcast_scalar = declare(
    _broadcast_scalar,
    name="broadcast_scalar",
    family="creation",
    infer=_infer_broadcast_scalar,
    lowering=Regions(lambda specs, outs, params: [OutputRegion(_whole(outs[0]), source=0)]),
    traits=Trait.CREATION | Trait.VARYING,
    public=False,
    samples=lambda rng: [Sample((7,), {"shape": (3, 2), "dtype": dtypes.int64})],
    tolerance=Tolerance(0.0),
)


def _infer_arange(specs: Specs, params: dict[str, Any]) -> list[Output]:
    start, stop, step, dtype = (params[name] for name in ("start", "stop", "step", "dtype"))
    integral = all(isinstance(v, int) for v in (start, stop, step))
    default = dtypes.DEFAULT_INT if integral else dtypes.DEFAULT_FLOAT
    params["dtype"] = default if dtype is None else as_dtype(dtype)
    return [(params["dtype"], (_range(start, stop, step, params["dtype"])[2],))]


def _range(start: float, stop: Any, step: float, dtype: DType | None) -> tuple[Any, Any, int]:
    """First number, step and count. As in PyTorch, an integer dtype truncates both numbers, int64 before it counts."""
    numbers = start, stop, step
    if dtype is dtypes.int64:
        start, stop, step = (int(v) for v in numbers)
    if step == 0:
        raise ValueError(f"step {numbers[2]}; expected a number other than 0")
    count = max(0, math.ceil((stop - start) / step))
    return (int(start), int(step), count) if dtype is not None and dtype.is_integral else (start, step, count)


def _arange(*, start: float, stop: float, step: float = 1, dtype: DType | None = None) -> Any:
    """Evenly spaced numbers from `start` up to, not including, `stop`."""
    kind = None if dtype is None else as_dtype(dtype)
    first, difference, count = _range(start, stop, step, kind)
    out = first + difference * np.arange(count)
    return out if kind is None else out.astype(kind.numpy)


arange = declare(
    _arange,
    name="arange",
    family="creation",
    infer=_infer_arange,
    lowering=HostConstant(lambda params: np.asarray(_arange(**params))),
    traits=Trait.CREATION,
    samples=lambda rng: [
        Sample((), {"start": 0, "stop": 7, "step": 1, "dtype": dtypes.int32}),
        Sample((), {"start": 5, "stop": -3, "step": -2, "dtype": dtypes.int64}),
        Sample((), {"start": 0.5, "stop": 2.0, "step": 0.25, "dtype": dtypes.float32}),
        Sample((), {"start": 3, "stop": 3, "step": 1, "dtype": dtypes.float32}),
    ],
    tolerance=Tolerance(1.0),
)
