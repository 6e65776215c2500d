"""Max and average pooling and their gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.pooling import Pooling, describe
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.cpu_max_pool import max_pool
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec, is_channels_last
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_ITEMS_PER_UNIT = 16
"""Work-items per compute unit of a CPU, for load balance."""
_TRANSACTION = 16
"""Bytes that a work-item of a GPU moves at once."""
_MAX_BLOCK = 4
"""Maximum pixels between windows for which a work-item of the gradient makes all of them, in registers."""
_NO_TAP = {"uchar": 0xFF, "ushort": 0xFFFF}
"""NO_TAP of conv/pooling_channels_last.cl, by the type of taps."""
_LENGTHS = (
    "height", "width", "down", "across", "kernel_h", "kernel_w", "stride_h", "stride_w", "padding_h", "padding_w",
    "dilation_h", "dilation_w",
)  # fmt: skip
"""The members of PoolingGeometry, in the order of Pooling.lengths."""
_AXES = ("image", "channel", "row", "column")

Inputs = tuple[InputSpec | None, ...]


def _lowering(kernel: str, gradient: bool, operands: tuple[str, ...]) -> LoweringFunction:
    """Return the lowering of a kernel with these memory parameters, the result last."""

    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        (out,) = outputs
        pooling = describe(inputs, out, params, gradient=gradient)
        if isinstance(pooling, Declined):
            return pooling
        definitions: dict[str, str | int | bool] = {
            "DTYPE": pooling.dtype.name,
            "REAL": real_type(pooling.dtype),
            "OUT_DTYPE": out.dtype.name,
            "INCLUDE_PADDING": params.get("count_include_pad", True),
        }
        if not out.is_contiguous:
            return _channels_last(runtime, kernel, pooling, (*inputs, out), definitions, operands)
        on_cpu = runtime.features.cpu and kernel in ("max_pool", "max_pool_grad")
        if on_cpu and _is_2x2(pooling):
            return _max_pool_2x2(runtime, kernel, pooling, definitions, operands)
        args: Args = {
            "channels": pooling.channels,
            **dict(zip(_LENGTHS, pooling.lengths, strict=True)),
            **_operands(operands, pooling, _AXES),
        }
        if on_cpu:
            return max_pool(runtime, pooling, args, gradient=gradient)
        items, function = pooling.pixels, kernel
        if kernel == "max_pool_grad" and (cells := _disjoint_cells(pooling)):
            items, function = cells, "max_pool_disjoint_grad"
        return runtime.launch(
            "conv/pooling",
            definitions,
            args,
            (items, pooling.planes),
            _group(runtime, items, pooling.planes),
            kernel=function,
        )

    return lower


def _group(runtime: Runtime, items: int, planes: int) -> tuple[int, int]:
    """Return the work-items of a group along each axis: a group takes several small planes."""
    size = runtime.features.group_size
    lanes = min(size, power_of_two_at_least(items))
    return lanes, math.gcd(planes, size // lanes)


def _channels_last(
    runtime: Runtime,
    kernel: str,
    pooling: Pooling,
    call: tuple[InputSpec | None, ...],
    definitions: Definitions,
    operands: tuple[str, ...],
) -> Launch | Declined:
    """Build the launch for images with channels last, for vectors of channels."""
    specs = [s for s in call if isinstance(s, Spec)]
    channels, images = pooling.channels, pooling.planes // pooling.channels
    last = is_channels_last(specs[-1]) and all(s.strides[1] == 1 for s in specs)
    if runtime.features.cpu or not last or kernel == "max_pool_indices":
        return Declined("the result is not contiguous")
    if any(not s.size for s in specs):
        return Declined("an image without elements")
    width = _TRANSACTION // pooling.dtype.itemsize
    while width > 1 and any(n % width for s in specs for n in (channels, s.strides[0], *s.strides[2:])):
        width //= 2
    geometry: Args = {"channels": channels, **dict(zip(_LENGTHS, pooling.lengths, strict=True))}
    area = math.prod(pooling.lengths[4:6])
    steps = pooling.lengths[6:8]
    in_blocks = math.prod(steps) <= _MAX_BLOCK
    tap = "uchar" if area < _NO_TAP["uchar"] else "ushort"
    vectors: Definitions = {
        **definitions,
        **{name.upper(): length for name, length in zip(_LENGTHS[4:], pooling.lengths[4:], strict=True)},
        "TAP": tap,
        "NO_TAP": _NO_TAP[tap],
        "BLOCKS": in_blocks,
        "MASK": "long" if definitions["REAL"] == "double" else "int",
        "PTX_MAXIMUM": definitions["REAL"] == "float" and runtime.features.tensor_cores,
        "WIDTH": width,
        "ALIGNED": width > 1 and all(s.aligned for s in specs),
    }

    def launch(function: str, memory: Args, pixels: int) -> Launch:
        args = dict(memory)
        for name, spec in zip(operands[:-1], specs, strict=False):
            if name in memory:
                args |= {
                    f"{name}_image": spec.strides[0],
                    f"{name}_row": spec.strides[2],
                    f"{name}_column": spec.strides[3],
                }
        return runtime.launch(
            "conv/pooling_channels_last",
            vectors,
            args | geometry,
            (pixels * (channels // width), images),
            (runtime.features.group_size, 1),
            kernel=function,
        )

    tensors: Args = {name: Tensor(i) for i, name in enumerate(operands)}
    if kernel != "max_pool_grad":
        return launch(f"{kernel}_last", tensors, pooling.pixels)
    if area >= _NO_TAP[tap]:
        return Declined(f"windows of {pooling.lengths[4:6]} elements; expected fewer than {_NO_TAP[tap]} in all")
    windows, taps = math.prod(pooling.lengths[2:4]), Workspace(len(operands))
    choose = launch("max_pool_choose_last", {"x": tensors["x"], "taps": taps}, windows)
    lengths = zip(pooling.lengths[:2], pooling.lengths[8:10], steps, strict=True)
    blocks = [(length + padding - 1) // (step if in_blocks else 1) + 1 for length, padding, step in lengths]
    gather = launch("max_pool_grad_last", {"g": tensors["g"], "taps": taps, "dx": tensors["dx"]}, math.prod(blocks))
    return LaunchSequence((choose, gather), ((1 if tap == "uchar" else 2) * windows * pooling.planes,))


def _operands(names: tuple[str, ...], pooling: Pooling, axes: tuple[str, ...]) -> Args:
    """Return the memory of all operands, and the strides of the inputs along these axes."""
    args: Args = {name: Tensor(i) for i, name in enumerate(names)}
    for i, name in enumerate(names[:-1]):
        strides = pooling.strides[len(_AXES) * i :]
        args |= {f"{name}_{axis}": stride for axis, stride in zip(axes, strides, strict=False)}
    return args


def _is_2x2(pooling: Pooling) -> bool:
    """Return whether windows of 2 x 2 and stride 2 cover the image, with contiguous rows in memory."""
    height, width, down, across, *rest = pooling.lengths
    columns = pooling.strides[3::4]
    return rest == [2, 2, 2, 2, 0, 0, 1, 1] and (height, width) == (2 * down, 2 * across) and set(columns) == {1}


def _max_pool_2x2(
    runtime: Runtime, kernel: str, pooling: Pooling, definitions: Definitions, operands: tuple[str, ...]
) -> Launch:
    """Build the launch for windows of 2 x 2 and stride 2 on a CPU, where a work-item takes several planes."""
    planes_each = ceil_div(pooling.planes, _ITEMS_PER_UNIT * runtime.features.compute_units)
    down, across = pooling.lengths[2:4]
    args: Args = {
        "planes": pooling.planes,
        "planes_each": planes_each,
        "channels": pooling.channels,
        "down": down,
        "across": across,
        **_operands(operands, pooling, _AXES[:3]),
    }
    real = definitions["REAL"]
    # Gradients are read eight at a time, so their planes must be contiguous.
    gradient_rows = pooling.strides[2:-4:4]
    vectors = across % 4 == 0 and down * across % 8 == 0 and all(step == across for step in gradient_rows)
    return runtime.launch(
        "conv/cpu_pooling",
        {"DTYPE": definitions["DTYPE"], "REAL": real, "MASK": "long" if real == "double" else "int"},
        args,
        (ceil_div(pooling.planes, planes_each),),
        (1,),
        kernel=kernel.replace("max_pool", "max_pool_2x2_vector" if vectors else "max_pool_2x2"),
    )


def _disjoint_cells(pooling: Pooling) -> int:
    """Return the image's cells of stride_h by stride_w if windows are disjoint and inside the image, else 0."""
    height, width, down, across, kernel_h, kernel_w, stride_h, stride_w, *rest = pooling.lengths
    if (down - 1) * stride_h + kernel_h > height or (across - 1) * stride_w + kernel_w > width:
        return 0
    if kernel_h > stride_h or kernel_w > stride_w or rest != [0, 0, 1, 1]:
        return 0
    return ceil_div(height, stride_h) * ceil_div(width, stride_w)


LOWERINGS: dict[str, LoweringFunction] = {
    "max_pool2d": _lowering("max_pool", False, ("x", "out")),
    "max_pool2d_indices": _lowering("max_pool_indices", False, ("x", "out")),
    "max_pool2d_grad": _lowering("max_pool_grad", True, ("g", "x", "dx")),
    "avg_pool2d": _lowering("avg_pool", False, ("x", "out")),
    "avg_pool2d_grad": _lowering("avg_pool_grad", True, ("g", "dx")),
}
