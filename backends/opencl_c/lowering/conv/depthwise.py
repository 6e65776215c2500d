"""Depthwise convolution and its gradients on GPUs: groups of one channel and few filters, memory-bound."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_MAX_FILTERS = 4
"""Maximum number of filters per channel."""
_REGISTERS = 72
"""Maximum pixels and sums of the weight's gradient that a work-item keeps in registers."""
_LINES = 4
_MAX_STRIDE = 4
_GROUP = 256
"""Work-items that share the gradients of a filter."""
_GROUPS_PER_UNIT = 8
"""Groups per compute unit that saturate its memory bandwidth."""

Definitions = dict[str, str | int | bool]


def supports(c: Convolution, *, weight_grad: bool = False) -> bool:
    """Return whether the kernels support a convolution: groups of one channel, and windows that fit into registers."""
    g = c.geometry
    span = (_LINES - 1) * g.stride[0] + (g.kernel[0] - 1) * g.dilation[0] + 1
    registers = span * g.kernel[1] + (g.taps if weight_grad else 0)
    weight = c.out if weight_grad else c.second
    return (
        g.channels == 1
        and g.groups > 1
        and g.filters <= _MAX_FILTERS
        and registers <= _REGISTERS
        and max(g.stride) <= _MAX_STRIDE
        and weight.is_contiguous
        and c.out.is_contiguous
    )


def forward(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launch of the convolution."""
    g = c.geometry
    args: dict[str, Argument] = {} if c.bias is None else {"bias": Tensor(c.bias)}
    definitions = _definitions(g, c, g.padding) | {"BIAS": c.bias is not None}
    return _launch(runtime, c, definitions, g.groups * g.filters, g.size, g.result, args)


def input_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launch of the gradient of the input: for stride 1 a convolution with flipped filters."""
    g = c.geometry
    if g.stride != (1, 1):
        lines = g.stride[0] * ceil_div(_LINES, g.stride[0])
        definitions = _definitions(g, c, g.padding) | {"LINES": lines}
        return _launch(runtime, c, definitions, g.groups, g.result, g.size, {}, "conv_depthwise_spread")
    reach = [(k - 1) * d - p for k, d, p in zip(g.kernel, g.dilation, g.padding, strict=True)]
    definitions = _definitions(g, c, (reach[0], reach[1])) | {"TRANSPOSED": True}
    return _launch(runtime, c, definitions, g.groups, g.result, g.size, {})


def weight_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the gradient of the weight: partial sums over some images each, and their reduction."""
    g, grad, x, out = c.geometry, c.first, c.second, c.out
    filters, real = g.groups * g.filters, real_type(out.dtype)
    group = power_of_two_at_most(min(_GROUP, runtime.features.max_group_size))
    splits = min(g.images, ceil_div(_GROUPS_PER_UNIT * runtime.features.compute_units, filters))
    images_each = ceil_div(g.images, splits)
    splits = ceil_div(g.images, images_each)
    strides = dict(zip(("g_image", "g_channel", "g_row", "g_column"), grad.strides, strict=True))
    partial = Workspace(c.target + 1)
    multiply = runtime.launch(
        "conv/depthwise",
        _definitions(g, c, g.padding) | {"GROUP": group},
        {
            "g": Tensor(0),
            "x": Tensor(1),
            "partial": partial,
            "images": g.images,
            "images_each": images_each,
            **strides,
            **_geometry(x, g.size, g.result, filters, g.filters),
        },
        (filters * group, splits),
        (group, 1),
        kernel="conv_depthwise_weight_grad",
    )
    reduce = runtime.launch(
        "gemm/split_k_reduce",
        {"OUT_DTYPE": out.dtype.name, "DTYPE": out.dtype.name, "REAL": real, "BIAS": False},
        {
            "partial": partial,
            "out": Tensor(c.target),
            "size": out.size,
            "n": g.taps,
            "splits": splits,
            "m": filters,
            "batch1": 1,
            "batch2": 1,
        },
        (out.size,),
        (runtime.features.group_size,),
    )
    return LaunchSequence((multiply, reduce), (splits * out.size * (8 if real == "double" else 4),))


def _launch(
    runtime: Runtime,
    c: Convolution,
    definitions: Definitions,
    channels: int,
    size: tuple[int, int],
    result: tuple[int, int],
    more: dict[str, Argument],
    kernel: str = "conv_depthwise",
) -> Launch:
    lines = int(definitions["LINES"])
    args = {
        "x": Tensor(0),
        "weight": Tensor(1),
        "out": Tensor(c.target),
        **more,
        **_geometry(c.first, size, result, channels, c.geometry.filters),
    }
    items = (ceil_div(result[0], lines) * result[1], channels, c.geometry.images)
    return runtime.launch(
        "conv/depthwise", definitions, args, items, (runtime.features.group_size, 1, 1), kernel=kernel
    )


def _geometry(
    x: Spec, size: tuple[int, int], result: tuple[int, int], channels: int, multiplier: int
) -> dict[str, Argument]:
    """Return the members of DepthwiseGeometry."""
    strides = dict(zip(("x_image", "x_channel", "x_row", "x_column"), x.strides, strict=True))
    return {
        **strides,
        "height": size[0],
        "width": size[1],
        "down": result[0],
        "across": result[1],
        "channels": channels,
        "multiplier": multiplier,
    }


def _definitions(g: Geometry, c: Convolution, padding: tuple[int, int]) -> Definitions:
    return {
        "DTYPE": c.first.dtype.name,
        "OUT_DTYPE": c.out.dtype.name,
        "REAL": real_type(c.out.dtype),
        "KERNEL_H": g.kernel[0],
        "KERNEL_W": g.kernel[1],
        "STRIDE_Y": g.stride[0],
        "STRIDE_X": g.stride[1],
        "DILATION_Y": g.dilation[0],
        "DILATION_X": g.dilation[1],
        "PADDING_Y": padding[0],
        "PADDING_X": padding[1],
        "LINES": _LINES,
    }
