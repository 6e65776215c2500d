"""Max and average pooling and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.common.problems.pooling import describe
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.launch import ints, longs, pointers, uints, ulongs
from polyhal_cupy.lowering.support.rows import real_type
from polyhal_cupy.runtime import Runtime

_BLOCK = 256


def _lowering(kernel: str, gradient: bool) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        (out,) = outputs
        pooling = describe(inputs, out, params, gradient=gradient)
        if isinstance(pooling, Declined):
            return pooling
        parameters = [
            *pointers(*range(len(inputs) + 1)), *ulongs(out.size), *uints(pooling.channels), *ints(*pooling.lengths),
            *longs(*pooling.strides),
        ]  # fmt: skip
        definitions: dict[str, str | int | bool] = {
            "DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "INCLUDE_PADDING": params.get("count_include_pad", True),
            "BLOCK": _BLOCK,
        }  # fmt: skip
        blocks = ceil_div(out.size, _BLOCK)
        return runtime.launch(kernel, "conv/pooling", definitions, parameters, blocks, _BLOCK, kernel=kernel)

    return lower


LOWERINGS: dict[str, LoweringFunction] = {
    "max_pool2d": _lowering("max_pool", False),
    "max_pool2d_grad": _lowering("max_pool_grad", True),
    "avg_pool2d": _lowering("avg_pool", False),
    "avg_pool2d_grad": _lowering("avg_pool_grad", True),
}
