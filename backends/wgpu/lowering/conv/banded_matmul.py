"""Resampling along an axis, as the product with a banded matrix. Kernel: shaders/wgsl/conv/banded_matmul.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import outer_axis_inner
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _banded_matmul(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    x, starts, weights = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(starts, Spec) or not isinstance(weights, Spec):
        return Declined("an operand is a number")
    if not starts.is_contiguous or not weights.is_contiguous:
        return Declined("the matrix is not contiguous")
    if too_large(runtime, out, x, starts, weights):
        return OPERAND_TOO_LARGE
    merged = outer_axis_inner(x, params["axis"])
    if merged is None:
        return Declined("the axes other than the resampled one cannot be merged")
    (_, _, inner), strides = merged
    rows, taps = weights.shape
    group = runtime.features.group_size
    args: Arguments = {
        "x": Tensor(0),
        "starts": Tensor(1),
        "weights": Tensor(2),
        "out": Tensor(3),
        "size": out.size,
        "rows": rows,
        "inner": inner,
        "taps": taps,
        **dict(zip(("x_outer", "x_axis", "x_inner"), strides, strict=True)),
    }
    definitions = {"DTYPE": out.dtype.name, "WEIGHT_DTYPE": weights.dtype.name, "GROUP": group}
    return runtime.launch("conv/banded_matmul", definitions, args, ceil_div(out.size, group))


LOWERINGS: dict[str, LoweringFunction] = {"banded_matmul": _banded_matmul}
