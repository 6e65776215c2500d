"""Casts between dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    CoreCall,
    CoreInput,
    CoreMember,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    Trait,
    declare,
    first_tensor,
)
from polyhal.hal.ops.tensor_like import Array
from polyhal.hal.protocol import ComputeBackend


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    params["dtype"] = dtypes.as_dtype(params["dtype"])
    return [(params["dtype"], () if specs[0] is None else specs[0].shape)]


def _cast(x: Array, *, dtype: DType) -> Any:
    """`x` in another dtype: floats truncate towards zero, integers wrap, anything non-zero is True."""
    return np.asarray(x).astype(dtypes.as_dtype(dtype).numpy)


def _copy(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    spec, (output,) = first_tensor(specs), outputs
    source = CoreInput(spec.dtype, spec.shape, exact=True)
    return CoreCall("copy", backend.copy, (source,), output.dtype, output.shape, result_exact=True)


cast = declare(
    _cast,
    name="cast",
    family="elementwise",
    promotion="cast",
    infer=_infer,
    lowering=CoreMember(_copy),
    traits=Trait.POINTWISE | Trait.CHEAP | Trait.INPLACE,
    gradient=lambda g, x_spec: g.cast(dtype=x_spec.dtype) if x_spec.dtype.kind == "float" else None,
    samples=lambda rng: [
        Sample((rng.uniform(0, 100, s),), {"dtype": d}, differentiable=d is dtypes.float64)
        for s in [(), (33,), (3, 4)]
        for d in dtypes.ALL
    ],
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.5),
)


def in_dtype(x: Any, dtype: DType) -> Any:
    """Return `x` in a dtype: itself if that is its own."""
    return x if x.dtype is dtype else x.cast(dtype=dtype)
