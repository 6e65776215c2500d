"""Max and average pooling and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common.launch import Constant, Tensor
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
Lower = Callable[[Runtime, Inputs, tuple[Spec, ...], Mapping[str, Any]], Launch | Declined]


def _lowering(kernel: str, gradient: bool) -> Lower:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        (out,) = outputs
        tensors = [s for s in inputs if isinstance(s, Spec)]
        if len(tensors) != len(inputs) or any(s.dtype is not out.dtype for s in tensors):
            return Declined("operands of different dtypes")
        image, pooled = (out, tensors[0]) if gradient else (tensors[0], out)
        planes = math.prod(out.shape[:2])
        items = math.prod(out.shape[2:])
        if max(items, planes) >= 1 << 31:
            return Declined("2^31 elements or more")
        lengths = (
            *image.shape[2:], *pooled.shape[2:], *params["kernel"], *params["stride"], *params["padding"],
            *params.get("dilation", (1, 1)),
        )  # fmt: skip
        steps = [Constant(v, "long") for s in tensors for v in s.strides]
        parameters: list[Parameter] = [
            *(Tensor(i) for i in range(len(tensors) + 1)), Constant(out.shape[1], "uint"),
            *(Constant(v, "int") for v in lengths), *steps,
        ]  # fmt: skip
        definitions: dict[str, str | int | bool] = {
            "DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "INCLUDE_PADDING": params.get("count_include_pad", True)
        }  # fmt: skip
        group = (runtime.features.group_size, 1)
        return runtime.launch(kernel, "pooling", definitions, parameters, (items, planes), group, kernel=kernel)

    return lower


LOWERINGS: dict[str, Lower] = {
    "max_pool2d": _lowering("max_pool", False),
    "max_pool2d_grad": _lowering("max_pool_grad", True),
    "avg_pool2d": _lowering("avg_pool", False),
    "avg_pool2d_grad": _lowering("avg_pool_grad", True),
}
