"""Casts between dtypes."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS, CoreCall, CoreInput, OpDef, Output, Params, Sample, Specs, Tolerance
from polyhal.hal.ops.pointwise.elementwise import OPERANDS
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import ComputeBackend


def _infer_cast(specs: Specs, params: dict[str, Any]) -> list[Output]:
    params["dtype"] = dtypes.as_dtype(params["dtype"])
    assert specs[0] is not None
    return [(params["dtype"], specs[0].shape)]


def _cast_reference(x: Any, *, dtype: Any) -> Any:
    return np.asarray(x).astype(dtypes.as_dtype(dtype).numpy)


def _cast_core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    spec, (output,) = specs[0], outputs
    assert isinstance(spec, Spec)
    return CoreCall(
        "copy", backend.copy, (CoreInput(spec.dtype, spec.shape, exact=True),), output.dtype, output.shape, True
    )


OPERANDS["cast"] = "cast"
cast = OPS.declare(
    OpDef(
        name="cast",
        family="elementwise",
        inputs=("x",),
        optional=frozenset(),
        variadic=False,
        outputs=("out",),
        doc="`x` in another dtype: floats truncate towards zero, integers wrap, anything non-zero is True.",
        params={"dtype": inspect.Parameter.empty},
        infer=_infer_cast,
        reference=_cast_reference,
        core=_cast_core,
        widen=False,
        gradient=lambda g, x_spec: g.cast(dtype=x_spec.dtype) if x_spec.dtype.kind == "float" else None,
        samples=lambda rng: [
            Sample((rng.uniform(0, 100, s),), {"dtype": d}, differentiable=d is dtypes.float64)
            for s in [(), (33,), (3, 4)]
            for d in dtypes.ALL
        ],
        dtypes=dtypes.ALL,
        tolerance=Tolerance(0.5),
        traits=Trait.CHEAP | Trait.POINTWISE | Trait.INPLACE,
    )
)
