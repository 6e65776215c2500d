"""Max and average pooling and their gradients. Kernel: shaders/wgsl/conv/pooling.wgsl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.pooling import describe
from polyhal.backends.wgpu.launch import Parameter
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]


def _lowering(kernel: str, gradient: bool) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        (out,) = outputs
        pooling = describe(inputs, out, params, gradient=gradient)
        if isinstance(pooling, Declined):
            return pooling
        if too_large(runtime, out, *(s for s in inputs if isinstance(s, Spec))):
            return Declined("an operand is larger than what a kernel can see at once")
        # Elements smaller than a word are stored four at a time: a single one would need two atomic operations.
        lanes = 4 if out.dtype.itemsize < 4 and out.aligned else 1
        group = runtime.features.group_size
        definitions = {
            "OPERATION": kernel, "DTYPE": out.dtype.name, "LANES": lanes, "GROUP": group,
            "INCLUDE_PADDING": params.get("count_include_pad", True),
        }  # fmt: skip
        parameters: list[Parameter] = [
            *(Tensor(i) for i in range(len(inputs) + 1)), Constant(out.size, "uint"), Constant(pooling.channels, "uint"),
            *(Constant(v, "int") for v in pooling.lengths), *(Constant(v, "uint") for v in pooling.strides),
        ]  # fmt: skip
        return runtime.launch(
            kernel, "conv/pooling", definitions, parameters, ceil_div(ceil_div(out.size, lanes), group)
        )

    return lower


LOWERINGS: dict[str, LoweringFunction] = {
    "max_pool2d": _lowering("max_pool", False),
    "max_pool2d_grad": _lowering("max_pool_grad", True),
    "avg_pool2d": _lowering("avg_pool", False),
    "avg_pool2d_grad": _lowering("avg_pool_grad", True),
}
