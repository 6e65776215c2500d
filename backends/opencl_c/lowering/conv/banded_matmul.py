"""Resampling along an axis, as the product with a banded matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Strided, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import outer_axis_inner
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_FEW_TAPS = 16
"""Maximum number of taps whose loops are unrolled, at the cost of one program per number."""


def _banded_matmul(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    x, starts, weights = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(starts, Spec) or not isinstance(weights, Spec):
        return Declined("an operand is a number")
    if not starts.is_contiguous or not weights.is_contiguous:
        return Declined("the matrix is not contiguous")
    if (x.dtype.itemsize == 8) != (weights.dtype.itemsize == 8):
        return Declined("x and the weights differ in precision")
    merged = outer_axis_inner(x, params["axis"])
    if merged is None:
        return Declined("the axes other than the resampled one cannot be merged")
    (outer, _, inner), strides = merged
    rows, taps = weights.shape
    if max(rows, inner, outer) >= 1 << 31:
        return Declined("2^31 elements or more")
    inner_first = inner >= min(rows, runtime.features.group_size // 2)
    return runtime.launch(
        "conv/banded_matmul",
        {
            "DTYPE": out.dtype.name,
            "WEIGHT_DTYPE": weights.dtype.name,
            "REAL": real_type(out.dtype),
            "TAPS": taps if taps <= _FEW_TAPS else 0,
            "INNER_FIRST": inner_first,
            "UNIT_INNER": strides[2] == 1,
        },
        {
            "x": Strided(Tensor(0), dict(zip(("outer", "axis", "inner"), strides, strict=True))),
            "starts": Tensor(1),
            "weights": Tensor(2),
            "out": Tensor(3),
            "rows": rows,
            "inner": inner,
            "taps": taps,
        },
        (inner, rows, outer) if inner_first else (rows, inner, outer),
        (runtime.features.group_size, 1, 1),
        kernel="banded_matmul",
    )


LOWERINGS: dict[str, LoweringFunction] = {"banded_matmul": _banded_matmul}
