"""Max and average pooling and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.pooling import Pooling, describe
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_SPANS_PER_UNIT = 16
"""Work-items of a CPU per compute unit, so that none waits long for another."""

Inputs = tuple[InputSpec | None, ...]


def _lowering(kernel: str, gradient: bool) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        (out,) = outputs
        pooling = describe(inputs, out, params, gradient=gradient)
        if isinstance(pooling, Declined):
            return pooling
        parameters: list[Parameter] = [
            *(Tensor(i) for i in range(len(inputs) + 1)), Constant(pooling.channels, "uint"),
            *(Constant(v, "int") for v in pooling.lengths), *(Constant(v, "long") for v in pooling.strides),
        ]  # fmt: skip
        definitions: dict[str, str | int | bool] = {
            "DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "INCLUDE_PADDING": params.get("count_include_pad", True)
        }  # fmt: skip
        if kernel.startswith("max_pool") and runtime.features.cpu and _in_pairs(pooling):
            return _pairs(runtime, kernel, pooling, definitions, len(inputs))
        items, group = (pooling.pixels, pooling.planes), (runtime.features.group_size, 1)
        if kernel == "max_pool_grad" and (cells := _cells(pooling)):
            return runtime.launch(
                kernel,
                "conv/pooling",
                definitions,
                parameters,
                (cells, pooling.planes),
                group,
                kernel="max_pool_apart_grad",
            )
        return runtime.launch(kernel, "conv/pooling", definitions, parameters, items, group, kernel=kernel)

    return lower


def _in_pairs(pooling: Pooling) -> bool:
    """Whether windows of 2 x 2 lie side by side and cover the image, with rows of neighbours in memory."""
    height, width, down, across, *rest = pooling.lengths
    columns = pooling.strides[3::4]
    return rest == [2, 2, 2, 2, 0, 0, 1, 1] and (height, width) == (2 * down, 2 * across) and set(columns) == {1}


def _pairs(runtime: Runtime, kernel: str, pooling: Pooling, definitions: Definitions, inputs: int) -> Launch:
    """The launch for such windows on a CPU, whose work-items take some images each."""
    each = ceil_div(pooling.planes, _SPANS_PER_UNIT * runtime.features.compute_units)
    lengths = (pooling.planes, each, pooling.channels, *pooling.lengths[2:4])
    strides = [v for i, v in enumerate(pooling.strides) if i % 4 < 3]
    parameters: list[Parameter] = [
        *(Tensor(i) for i in range(inputs + 1)), *(Constant(v, "uint") for v in lengths),
        *(Constant(v, "long") for v in strides),
    ]  # fmt: skip
    real = definitions["REAL"]
    down, across = pooling.lengths[2:4]
    # Gradients are read eight at a time, as they lie in a plane without gaps.
    gradient_rows = pooling.strides[2:-4:4]
    fours = across % 4 == 0 and down * across % 8 == 0 and all(step == across for step in gradient_rows)
    defined = {"DTYPE": definitions["DTYPE"], "REAL": real, "MASK": "long" if real == "double" else "int"}
    return runtime.launch(
        kernel, "conv/cpu_pooling", defined, parameters, (ceil_div(pooling.planes, each),), (1,),
        kernel=kernel.replace("max_pool", f"max_pool_{'fours' if fours else 'pairs'}"),
    )  # fmt: skip


def _cells(pooling: Pooling) -> int:
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
