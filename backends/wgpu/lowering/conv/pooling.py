"""Max and average pooling and their gradients. Kernel: shaders/wgsl/conv/pooling.wgsl."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.pooling import describe
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]

_LENGTHS = (
    "height", "width", "down", "across", "kernel_h", "kernel_w", "stride_h", "stride_w", "padding_h", "padding_w",
    "dilation_h", "dilation_w",
)  # fmt: skip
_LOOPS = 2
"""Largest number of iterations per term, loops over rows included."""
_AXES = ("image", "channel", "row", "column")


def _lowering(kernel: str, operands: Sequence[str], gradient: bool) -> LoweringFunction:
    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        (out,) = outputs
        pooling = describe(inputs, out, params, gradient=gradient)
        if isinstance(pooling, Declined):
            return pooling
        if not out.is_contiguous:
            return Declined("the result is not contiguous")
        if too_large(runtime, out, *(s for s in inputs if isinstance(s, Spec))):
            return OPERAND_TOO_LARGE
        # A gradient is a sum over the windows that contain an element, a result a sum over the elements of a window.
        terms = math.prod(
            ceil_div(k, s) if gradient else k for k, s in zip(params["kernel"], params["stride"], strict=True)
        )
        limit = runtime.features.quirks.loop_limit // _LOOPS
        if limit and terms > limit:
            return Declined(f"sums of {terms} terms exceed the driver's limit of loop iterations")
        # Elements smaller than a word are stored four at a time: storing a single one would need two atomic operations.
        lanes = 4 if out.dtype.itemsize < 4 and out.aligned else 1
        group = runtime.features.group_size
        definitions = {
            "OPERATION": kernel,
            "DTYPE": pooling.dtype.name,
            "OUT_DTYPE": out.dtype.name,
            "LANES": lanes,
            "GROUP": group,
            "INCLUDE_PADDING": params.get("count_include_pad", True),
        }
        strides = [f"{name}_{axis}" for name in operands for axis in _AXES]
        args: Arguments = {
            **{name: Tensor(i) for i, name in enumerate((*operands, "out"))},
            "size": out.size,
            "channels": pooling.channels,
            **dict(zip(_LENGTHS, pooling.lengths, strict=True)),
            **dict(zip(strides, pooling.strides, strict=True)),
        }
        return runtime.launch("conv/pooling", definitions, args, ceil_div(ceil_div(out.size, lanes), group))

    return lower


LOWERINGS: dict[str, LoweringFunction] = {
    "max_pool2d": _lowering("max_pool", ("x",), False),
    "max_pool2d_indices": _lowering("max_pool_indices", ("x",), False),
    "max_pool2d_grad": _lowering("max_pool_grad", ("g", "x"), True),
    "avg_pool2d": _lowering("avg_pool", ("x",), False),
    "avg_pool2d_grad": _lowering("avg_pool_grad", ("g",), True),
}
