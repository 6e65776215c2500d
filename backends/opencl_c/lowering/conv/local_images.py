"""Convolutions of small images by GPUs, and for stride 1 the gradient of the input, in one launch from local memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.conv import Convolution, Geometry, Pair
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_GROUP = 256
"""Work-items per group."""
_LOCAL_BYTES = 40 << 10
"""Local memory of a group. All GPUs of today that have it on the chip have 32 KiB or more."""
_MULTIPLY_ADDS = 1 << 19
"""Maximum multiply-adds per compute unit for which launches cost more than tiles of a matrix product save."""
_PADDING = 4
"""Elements after the filters of a tap in local memory."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Shapes of the images that a launch reads, and of its results."""

    channels: int
    filters: int
    size: Pair
    result: Pair
    stride: Pair
    origin: Pair
    filters_each: int
    """Filters per group."""
    lines: Pair
    """Height and width of an image with its border."""

    def image(self) -> int:
        """Return the elements of an image in local memory."""
        return self.channels * math.prod(self.lines)

    def weights(self, kernel: Pair) -> int:
        """Return the elements of the weights in local memory."""
        return self.channels * math.prod(kernel) * (self.filters_each + _PADDING)


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launch of a convolution; None if another kernel is faster or needed."""
    g = c.geometry
    origin = (-g.padding[0], -g.padding[1])
    return _launch(runtime, c, _plan(runtime, g, g.channels, g.filters, g.size, g.result, g.stride, origin))


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launch of the gradient of a convolution's input; None if another kernel is faster or needed."""
    g = c.geometry
    if g.stride != (1, 1):
        return None
    reach = [p - (k - 1) * d for k, d, p in zip(g.kernel, g.dilation, g.padding, strict=True)]
    plan = _plan(runtime, g, g.filters, g.channels, g.result, g.size, (1, 1), (reach[0], reach[1]))
    return _launch(runtime, c, plan, transposed=True)


def _plan(
    runtime: Runtime, g: Geometry, channels: int, filters: int, size: Pair, result: Pair, stride: Pair, origin: Pair
) -> _Plan:
    lines = [(r - 1) * s + (k - 1) * d + 1 for r, s, k, d in zip(result, stride, g.kernel, g.dilation, strict=True)]
    blocks = min(ceil_div(runtime.features.compute_units, g.images), ceil_div(filters, 4))
    return _Plan(
        channels, filters, size, result, stride, origin, round_up(ceil_div(filters, blocks), 4), (lines[0], lines[1])
    )


def _suits(runtime: Runtime, c: Convolution, p: _Plan) -> bool:
    """Return whether the operands fit the kernel, and are so small that launches count."""
    g, features = c.geometry, runtime.features
    if features.cpu or not features.local_memory_is_real or features.max_group_size < _GROUP:
        return False
    if g.groups > 1 or real_type(c.out.dtype) != "float" or not (c.second.is_contiguous and c.out.is_contiguous):
        return False
    multiply_adds = g.images * math.prod(p.result) * p.filters * p.channels * math.prod(g.kernel)
    small = multiply_adds <= _MULTIPLY_ADDS * features.compute_units
    return small and 4 * (p.image() + p.weights(g.kernel)) <= min(_LOCAL_BYTES, features.local_memory)


def _launch(runtime: Runtime, c: Convolution, p: _Plan, *, transposed: bool = False) -> Launch | None:
    if not _suits(runtime, c, p):
        return None
    g = c.geometry
    pixels = min(_GROUP, power_of_two_at_least(math.prod(p.result)))
    taps = math.prod(g.kernel)
    steps = (taps, g.channels * taps) if transposed else (p.channels * taps, taps)
    image, channel, down, across = c.first.strides
    args: Args = {
        "x": Tensor(0),
        "weight": Tensor(1),
        "out": Tensor(c.target),
        "x_image": image,
        "x_channel": channel,
        "x_down": down,
        "x_across": across,
        "weight_filter": steps[0],
        "weight_channel": steps[1],
        "filters": p.filters,
        "height": p.size[0],
        "width": p.size[1],
        "pixels": math.prod(p.result),
        "origin_y": p.origin[0],
        "origin_x": p.origin[1],
        "stride_y": p.stride[0],
        "stride_x": p.stride[1],
        "dilation_y": g.dilation[0],
        "dilation_x": g.dilation[1],
    }
    if c.bias is not None:
        args["bias"] = Tensor(c.bias)
    lanes = _GROUP // pixels
    return runtime.launch(
        "conv/local_images",
        {
            "DTYPE": c.first.dtype.name,
            "OUT_DTYPE": c.out.dtype.name,
            "KERNEL_H": g.kernel[0],
            "KERNEL_W": g.kernel[1],
            "EACH": 8 if p.filters_each % 8 == 0 and p.filters_each >= 8 * lanes else 4,
            "FILTERS": p.filters_each,
            "PIXELS": pixels,
            "GROUP": _GROUP,
            "CHANNELS": p.channels,
            "LINES": p.lines[0],
            "LINE": p.lines[1],
            "ACROSS": p.result[1],
            "TRANSPOSED": transposed,
            "BIAS": c.bias is not None,
        },
        args,
        (g.images * _GROUP, ceil_div(p.filters, p.filters_each)),
        (_GROUP, 1),
    )
