"""Max and average pooling and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Strided, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.common.problems.pooling import describe
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.lowering.support.arguments import window_lengths
from polyhal_cupy.lowering.support.rows import real_type
from polyhal_cupy.runtime import Runtime

_BLOCK = 256


def _lowering(kernel: str, operands: tuple[str, ...], result: str) -> LoweringFunction:
    """Return the lowering of a kernel with these argument names for the inputs and the output."""

    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        (out,) = outputs
        pooling = describe(inputs, out, params, gradient=result == "dx")
        if isinstance(pooling, Declined):
            return pooling
        args: dict[str, Argument] = {
            result: Tensor(len(inputs)), "items": out.size, "channels": pooling.channels, **window_lengths(*pooling.lengths)
        }  # fmt: skip
        for i, operand in enumerate(operands):
            image, channel, row, column = pooling.strides[4 * i : 4 * i + 4]
            args[operand] = Strided(Tensor(i), {"image": image, "channel": channel, "row": row, "column": column})
        definitions: dict[str, str | int | bool] = {
            "DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "INCLUDE_PADDING": params.get("count_include_pad", True),
            "BLOCK": _BLOCK,
        }  # fmt: skip
        blocks = ceil_div(out.size, _BLOCK)
        return runtime.launch(kernel, "conv/pooling", definitions, args, blocks, _BLOCK, kernel=kernel)

    return lower


LOWERINGS: dict[str, LoweringFunction] = {
    "max_pool2d": _lowering("max_pool", ("x",), "out"),
    "max_pool2d_grad": _lowering("max_pool_grad", ("g", "x"), "dx"),
    "avg_pool2d": _lowering("avg_pool", ("x",), "out"),
    "avg_pool2d_grad": _lowering("avg_pool_grad", ("g",), "dx"),
}
