"""Max and average pooling and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common import poolings
from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Constant, Tensor
from polyhal.backends.common.lowering import LoweringFunction
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]


def _lowering(kernel: str, gradient: bool) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        (out,) = outputs
        pooling = poolings.describe(inputs, out, params, gradient=gradient)
        if isinstance(pooling, Declined):
            return pooling
        parameters: list[Parameter] = [
            *(Tensor(i) for i in range(len(inputs) + 1)), Constant(pooling.channels, "uint"),
            *(Constant(v, "int") for v in pooling.lengths), *(Constant(v, "long") for v in pooling.strides),
        ]  # fmt: skip
        definitions: dict[str, str | int | bool] = {
            "DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "INCLUDE_PADDING": params.get("count_include_pad", True)
        }  # fmt: skip
        items, group = (pooling.pixels, pooling.planes), (runtime.features.group_size, 1)
        if kernel == "max_pool_grad" and (cells := _cells(pooling)):
            return runtime.launch(
                kernel, "pooling", definitions, parameters, (cells, pooling.planes), group, kernel="max_pool_apart_grad"
            )
        return runtime.launch(kernel, "pooling", definitions, parameters, items, group, kernel=kernel)

    return lower


def _cells(pooling: poolings.Pooling) -> int:
    """How many cells the strides cut the image into, if no windows overlap or reach beyond it; otherwise 0."""
    height, width, _, _, kernel_h, kernel_w, stride_h, stride_w, *rest = pooling.lengths
    if kernel_h > stride_h or kernel_w > stride_w or rest != [0, 0, 1, 1]:
        return 0
    return ceil_div(height, stride_h) * ceil_div(width, stride_w)


LOWERINGS: dict[str, LoweringFunction] = {
    "max_pool2d": _lowering("max_pool", False),
    "max_pool2d_grad": _lowering("max_pool_grad", True),
    "avg_pool2d": _lowering("avg_pool", False),
    "avg_pool2d_grad": _lowering("avg_pool_grad", True),
}
