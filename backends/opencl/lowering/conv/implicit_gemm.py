"""Convolution on GPUs: each of its three ops is one product of a matrix and windows of images that are never laid out.

The forward pass and the gradient of the input multiply packed weights (rows) by windows (columns are pixels of the
result). In the gradient of the input, pixels whose coordinates have different remainders by the stride are reached by
different taps: they are different rows of one product, with zeros for taps that do not reach. The gradient of
the weight multiplies the gradient of the result (rows are filters, terms pixels) by windows (columns are taps).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry, Pair
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.conv import split_k
from polyhal.backends.opencl.lowering.conv.tile_configs import FEW_ROWS, choose, half_type, share_out
from polyhal.backends.opencl.lowering.gemm.arguments import ints, longs, uints
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_ROOM = 1 << 14
"""Coordinates in an image share words in pairs, with room to say that a place is outside."""
_FEW_FILTERS = 4
"""Filters per group up to which most of a tile of the weight's gradient would be empty."""
_TALLEST = 8


def forward(runtime: Runtime, c: Convolution) -> Launch | Declined:
    g, x, weight, out = c.geometry, c.first, c.second, c.out
    w, s, o = weight.strides, x.strides, out.strides
    axes = tuple(
        _Axis(kernel, kernel, 0, 1, 1, dilation) for kernel, dilation in zip(g.kernel, g.dilation, strict=True)
    )
    correlation = _Correlation(
        g.images, g.groups, g.filters, g.channels, (1, 1), axes, w[0], w[1], g.filters * w[0], g.result,
        (-g.padding[0], -g.padding[1]), g.stride, g.size, g.result, g.channels * s[1], g.filters * o[1],
    )  # fmt: skip
    return _correlate(runtime, "conv2d", correlation, c)


def input_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    g, slope, weight, out = c.geometry, c.first, c.second, c.out
    w, s, o = weight.strides, slope.strides, out.strides
    tall = _lines_per_place(g)
    (down, first), (across, second) = _gradient_axis(g, 0, tall), _gradient_axis(g, 1, 1)
    phases = (tall * g.stride[0], g.stride[1])
    lines = (ceil_div(g.size[0], phases[0]), ceil_div(g.size[1], phases[1]))
    correlation = _Correlation(
        g.images, g.groups, g.channels, g.filters, phases, (down, across), w[1], w[0], g.filters * w[0], lines,
        (first, second), (tall, 1), g.result, g.size, g.filters * s[1], g.channels * o[1],
    )  # fmt: skip
    return _correlate(runtime, "conv2d_input_grad", correlation, c)


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    g, slope, x, out = c.geometry, c.first, c.second, c.out
    method = choose(runtime, g.filters, x.dtype, out.dtype, c.precision, True)
    reason = _refusal(runtime, method.group, slope, x) or _too_far(g)
    if reason:
        return Declined(reason)
    if g.filters <= _FEW_FILTERS:
        return _dots(runtime, slope, x, out, g)
    m, n, k = g.filters, g.taps, g.images * g.pixels
    tiles = ceil_div(m, method.rows) * ceil_div(n, method.columns)
    splits, share = share_out(runtime, method, tiles * g.groups, k)
    places = [
        *uints(1, n, m, 1, 1, 1, n), *longs(m * n, 0, n, 0, 1),
    ]  # fmt: skip
    a, s = slope.strides, x.strides
    multiply = runtime.launch(
        "conv2d_weight_grad", "conv/implicit_gemm_weight_grad",
        {**method.definitions(x.dtype, out.dtype), "SPLIT": splits > 1, "OUT_LANES": 1 if n % 4 or not out.aligned else 4},
        [
            Tensor(0), Tensor(1), Workspace(3) if splits > 1 else Tensor(2), *uints(m, n, k, share, *g.result),
            *longs(m * a[1]), *ints(a[0], a[1], a[2], a[3]), *longs(g.channels * s[1]), *ints(*s), *ints(*g.size),
            *uints(*g.kernel), *ints(*g.stride, *g.padding, *g.dilation), *places,
        ],
        (tiles * method.group, splits, g.groups), (method.group, 1, 1),
    )  # fmt: skip
    shape = (splits, g.groups, m, n)
    return _summed(runtime, "conv2d_weight_grad", [multiply], shape, (x.dtype, out.dtype), (None, 2, 3), places, ())


def _dots(runtime: Runtime, slope: Spec, x: Spec, out: Spec, g: Geometry) -> Launch:
    group = power_of_two_at_most(min(256, runtime.features.group_size))
    return runtime.launch(
        "conv2d_weight_grad", "conv/direct_weight_grad",
        {"DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "GROUP": group},
        [
            Tensor(0), Tensor(1), Tensor(2), *uints(g.filters, g.channels, g.images * g.pixels, *g.result),
            *ints(*slope.strides, *x.strides, *g.size), *uints(*g.kernel), *ints(*g.stride, *g.padding, *g.dilation),
        ],
        (out.size * group,), (group,),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Axis:
    """The taps of an axis as conv/implicit_gemm_pack.cl numbers them; number i displaces a window by `i * reach`."""

    kernel: int
    taps: int
    start: int
    step: int
    divisor: int
    reach: int

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.kernel, self.taps, self.start, self.step, self.divisor, self.reach


def _lines_per_place(g: Geometry) -> int:
    """How many strides down a place of the input's gradient covers, so that few channels still fill the rows of a tile.

    The windows of such a place overlap and are read once.
    """
    rows = g.channels * math.prod(g.stride)
    return max(1, min(_TALLEST, FEW_ROWS // rows, g.size[0] // g.stride[0])) if g.dilation[0] == 1 else 1


def _gradient_axis(g: Geometry, axis: int, strides: int) -> tuple[_Axis, int]:
    """The taps that reach a place of the input, which is `strides` strides long, and how far the first of them is.

    With `phase` counted from the place's first pixel, tap t takes that pixel from result place * strides + d, where
    `stride * d = phase + padding - t * dilation`.
    """
    stride, padding, dilation, kernel = g.stride[axis], g.padding[axis], g.dilation[axis], g.kernel[axis]
    first = -((dilation * (kernel - 1) - padding) // stride)
    last = (stride * strides - 1 + padding) // stride
    reach = dilation if stride == 1 else 1
    taps = _Axis(kernel, (last - first) // reach + 1, padding - stride * first, -stride * reach, dilation, reach)
    return taps, first


@dataclass(frozen=True, slots=True)
class _Correlation:
    """What multiplies packed weights by windows; `channels` rows per phase, terms of `depth` times the axes' taps."""

    images: int
    groups: int
    channels: int
    depth: int
    phases: Pair
    axes: tuple[_Axis, ...]
    weight_row: int
    weight_depth: int
    weight_group: int
    lines: Pair
    """How many places there are per image; place i is at pixel `origin + i * step` of an image of `size`."""
    origin: Pair
    step: Pair
    size: Pair
    result: Pair
    x_group: int
    out_group: int


def _correlate(runtime: Runtime, name: str, c: _Correlation, operands: Convolution) -> Launch | Declined:
    x, weight, out = operands.first, operands.second, operands.out
    m, n = c.channels * math.prod(c.phases), c.images * math.prod(c.lines)
    k = c.depth * math.prod(axis.taps for axis in c.axes)
    method = choose(runtime, m, x.dtype, out.dtype, operands.precision, False)
    reason = _refusal(runtime, method.group, x, weight)
    if not reason and max(*c.size, *c.lines, *(a.taps * a.reach for a in c.axes), *map(abs, c.origin)) >= _ROOM:
        reason = f"an image, padding or window of {_ROOM} pixels or more"
    if reason:
        return Declined(reason)
    bias, result = operands.bias, operands.target
    first = result + 1
    padded_m, padded_k = round_up(m, method.rows), round_up(k, method.depth)
    real = real_type(out.dtype)
    item = 8 if real == "double" else 4
    w, s, o = weight.strides, x.strides, out.strides
    pack = runtime.launch(
        f"{name}_pack", "conv/implicit_gemm_pack",
        {
            "DTYPE": weight.dtype.name, "REAL": real, "PARTS": method.parts, "HALF_TYPE": half_type(x.dtype),
            "DEPTH": method.depth,
        },
        [
            Workspace(first), Workspace(first + 1), *uints(padded_m, padded_k), *ints(s[1], s[2], s[3]), Tensor(1),
            *uints(m, k, c.channels, c.depth, c.phases[1]),
            *longs(c.weight_group, c.weight_row, c.weight_depth, w[2], w[3]),
            *ints(*c.axes[0].numbers, *c.axes[1].numbers),
        ],
        (padded_m, padded_k // 2 if method.parts else padded_k, c.groups), (32, 1, 1),
    )  # fmt: skip
    tiles = padded_m // method.rows * ceil_div(n, method.columns)
    splits, share = share_out(runtime, method, tiles * c.groups, padded_k)
    split = splits > 1
    places = [
        *uints(*c.lines, c.channels, *c.phases, *c.result), *longs(c.out_group, o[0], o[1], o[2], o[3]),
    ]  # fmt: skip
    lanes = n % 4 == 0 if split else _quads(c, out)
    biased = bias is not None and not split
    multiply = runtime.launch(
        name, "conv/implicit_gemm",
        {
            **method.definitions(x.dtype, out.dtype), "BIAS": biased, "SPLIT": split, "OUT_LANES": 4 if lanes else 1,
        },
        [
            Workspace(first), Workspace(first + 1), Tensor(0), *([Tensor(bias)] if biased and bias is not None else []),
            Workspace(first + 2) if split else Tensor(result), *uints(m, n, padded_k, share), *longs(c.x_group),
            *ints(s[0], s[2], s[3], *c.size, *c.origin, *c.step), *places,
        ],
        (tiles * method.group, splits, c.groups), (method.group, 1, 1),
    )  # fmt: skip
    weight_bytes = c.groups * padded_k * padded_m * (2 * method.parts or item)
    workspace = (weight_bytes, padded_k * 8)
    shape = (splits, c.groups, m, n)
    dtypes = (x.dtype, out.dtype)
    return _summed(runtime, name, [pack, multiply], shape, dtypes, (bias, result, first + 2), places, workspace)


def _summed(
    runtime: Runtime, name: str, steps: list[Callable[..., None]], shape: tuple[int, int, int, int],
    dtypes: tuple[DType, DType], at: tuple[int | None, int, int], places: list[Parameter], workspace: tuple[int, ...],
) -> Launch:  # fmt: skip
    """The launch of `steps`, and of what adds up their shares of the terms if there are several.

    `at` has the positions of the bias, the output and the shares' workspace.
    """
    if shape[0] == 1:
        return LaunchSequence(name, steps, workspace)
    total = split_k.total(runtime, name, dtypes, at, shape, places)
    return LaunchSequence(name, [*steps, total], (*workspace, split_k.nbytes(shape, dtypes[1])))


def _quads(c: _Correlation, out: Spec) -> bool:
    """Whether any four columns from a multiple of 4 on lie side by side in the output, at a multiple of 4."""
    if c.phases != (1, 1) or math.prod(c.lines) % 4 or not out.aligned:
        return False
    image, channel, down, across = out.strides
    return bool(across == 1 and down == c.lines[1] and image % 4 == 0 and channel % 4 == 0)


def _too_far(g: Geometry) -> str:
    windows = (kernel * dilation for kernel, dilation in zip(g.kernel, g.dilation, strict=True))
    largest = max(*g.size, *g.result, *g.padding, *windows)
    return f"an image, padding or window of {_ROOM} pixels or more" if largest >= _ROOM else ""


def _refusal(runtime: Runtime, group: int, *specs: Spec) -> str:
    """Why these operands do not fit the kernels, or nothing."""
    if runtime.features.max_group_size < group:
        return f"groups of {group} work-items are more than the device takes"
    for spec in specs:
        reach = sum((length - 1) * abs(step) for length, step in zip(spec.shape, spec.strides, strict=True))
        if reach >= 1 << 31:
            return "an operand spans 2^31 elements or more"
    return ""
