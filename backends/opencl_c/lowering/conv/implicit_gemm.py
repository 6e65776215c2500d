"""Convolution on GPUs as an implicit matrix product: windows of images are never written to memory (no im2col).

The forward pass and the input gradient multiply packed weights (rows) by windows (columns are pixels of the result). In
the input gradient, pixels with different remainders by the stride (phases) get contributions from different taps: they
are different rows of one product, with zeros for taps that do not contribute. Where each tile contains rows of one phase
(channels are a multiple of its rows, no dilation), the phases are separate: each has a k axis of its own, without zeros.
The weight gradient multiplies the output's gradient (rows are filters, k pixels) by windows (columns are channels and taps).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.conv import Convolution, Correlation, Geometry
from polyhal.backends.opencl_c import occupancy
from polyhal.backends.opencl_c.lowering.conv import direct
from polyhal.backends.opencl_c.lowering.conv.arguments import (
    POSITION_LIMIT,
    Args,
    OutputIndex,
    geometry_args,
    output_index,
    stores_vectors,
)
from polyhal.backends.opencl_c.lowering.conv.split_k import Partials, reduction
from polyhal.backends.opencl_c.lowering.conv.tile_configs import (
    MIN_ROWS,
    TileConfig,
    choose_tile,
    half_type,
    split_tile,
)
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.lowering.support.wave import filled
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_MAX_STRIDES = 8
"""Maximum strides that a column of the input gradient spans."""
_PACK_GROUP = 32
"""Work-items per group of the launch that packs weights."""


@dataclass(frozen=True, slots=True)
class _TapAxis:
    """The kernel's taps along an axis: tap i of a product is tap (phase + start + i * step) / divisor of the kernel."""

    kernel: int
    start: int = 0
    step: int = 1
    divisor: int = 1

    def args(self, axis: str) -> Args:
        return {
            f"{axis}_kernel": self.kernel,
            f"{axis}_start": self.start,
            f"{axis}_step": self.step,
            f"{axis}_divisor": self.divisor,
        }


@dataclass(frozen=True, slots=True)
class _PackedProduct:
    """A product whose left operand is packed. Rows are (phase, channel); `taps` select their weights."""

    product: Correlation
    taps: tuple[_TapAxis, _TapAxis]
    output: OutputIndex
    separate: bool = False
    """True if phases are separate. Requires tiles with rows of a single phase."""

    @property
    def tables(self) -> int:
        """Number of tables of k-axis offsets: one for each separate phase."""
        return math.prod(self.output.phases) if self.separate else 1

    @property
    def absent_taps(self) -> bool:
        """Return whether rows of a phase contain zeros for taps of other phases."""
        return not self.separate and self.output.phases != (1, 1)

    def tap_args(self) -> Args:
        down, across = self.taps
        phases = {
            "channels": self.output.channels,
            "phases_across": self.output.phases[1],
            "separate": self.separate,
        }
        return {**phases, **down.args("down"), **across.args("across")}


def forward(runtime: Runtime, c: Convolution) -> Launch | Declined:
    """Build the launches of the convolution, with its bias."""
    g = c.geometry
    product = conv.forward(g, c.first, c.second, c.out)
    packed = _PackedProduct(product, (_TapAxis(g.kernel[0]), _TapAxis(g.kernel[1])), output_index(product))
    return _correlate(runtime, packed, c)


def input_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    """Build the launches of the input gradient, with all phases as rows of one product."""
    g = c.geometry
    tile = choose_tile(
        runtime, g.channels * math.prod(g.stride), c.first.dtype, c.out.dtype, c.precision, weight_grad=False
    )
    separate = g.stride != (1, 1) and g.dilation == (1, 1) and g.channels % tile.rows == 0
    return _correlate(runtime, _input_gradient(c, separate), c)


def _input_gradient(c: Convolution, separate: bool) -> _PackedProduct:
    """Return the product. If phases are `separate`, its number of taps is the maximum over the phases."""
    g, out = c.geometry, c.out
    w, s, o = c.second.strides, c.first.strides, out.strides
    strides = (_strides_per_column(g), 1)
    (down, down_count, down_reach, top), (across, across_count, across_reach, left) = (
        _gradient_taps(g, axis, strides[axis]) for axis in range(2)
    )
    if separate:
        down_count, across_count = (ceil_div(kernel, stride) for kernel, stride in zip(g.kernel, g.stride, strict=True))
    phases = (strides[0] * g.stride[0], g.stride[1])
    lines = (ceil_div(g.size[0], phases[0]), ceil_div(g.size[1], phases[1]))
    product = Correlation(
        groups=g.groups,
        m=g.channels * math.prod(phases),
        n=g.images * math.prod(lines),
        k=g.filters * down_count * across_count,
        a_group=g.filters * w[0],
        a_row=w[1],
        a_terms=(w[0], w[2], w[3]),
        x_group=g.filters * s[1],
        x_term=s[1],
        x_column=s[0],
        x_down=s[2],
        x_across=s[3],
        term_lengths=(down_count, across_count),
        column_lengths=lines,
        term_step=(down_reach, across_reach),
        column_step=strides,
        origin=(top, left),
        size=g.result,
        out_group=g.channels * o[1],
        out_row=o[1],
        out_columns=(o[0], phases[0] * o[2], phases[1] * o[3]),
    )
    output = OutputIndex((product.out_group, o[0], o[1], o[2], o[3]), lines, g.channels, phases, g.size)
    return _PackedProduct(product, (down, across), output, separate)


def _strides_per_column(g: Geometry) -> int:
    """Return the number of vertical strides that a column of the input gradient spans.

    With few channels, a stride has too few rows for a tile. The windows of a column that spans several overlap and are read
    once.
    """
    rows = g.channels * math.prod(g.stride)
    return max(1, min(_MAX_STRIDES, MIN_ROWS // rows, g.size[0] // g.stride[0])) if g.dilation[0] == 1 else 1


def _gradient_taps(g: Geometry, axis: int, strides: int) -> tuple[_TapAxis, int, int, int]:
    """Return the taps that contribute to a column of `strides` strides: taps, count, distance, and offset of the first.

    With `phase` counted from the column's first pixel, tap t of that pixel reads the output's gradient at
    column * strides + d, where `stride * d = phase + padding - t * dilation`.
    """
    stride, padding, dilation, kernel = g.stride[axis], g.padding[axis], g.dilation[axis], g.kernel[axis]
    first = -((dilation * (kernel - 1) - padding) // stride)
    last = (stride * strides - 1 + padding) // stride
    reach = dilation if stride == 1 else 1
    taps = _TapAxis(kernel, padding - stride * first, -stride * reach, dilation)
    return taps, (last - first) // reach + 1, reach, first


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    """Build the launches of the weight gradient. The output is contiguous."""
    g, grad, x, out = c.geometry, c.first, c.second, c.out
    tile = choose_tile(runtime, g.filters, x.dtype, out.dtype, c.precision, weight_grad=True)
    reason = _refusal(runtime, tile.group, grad, x) or _too_far(g)
    if reason:
        return Declined(reason)
    if direct.is_faster(runtime, c) or direct.sums_few(runtime, c):
        return direct.weight_grad(runtime, c)
    p = conv.weight_gradient(g, grad, x, out)
    tiles = ceil_div(p.m, tile.rows) * ceil_div(p.n, tile.columns)
    splits, k_per_split = split_tile(runtime, tile, tiles * g.groups, p.k)
    # Treat the pixels as one image of one line: columns need no division into coordinates.
    output = OutputIndex((p.m * p.n, 0, p.n, 0, 1), (1, p.n), p.m, (1, 1), (1, p.n))
    result: Args = {"partial": Workspace(3)} if splits > 1 else {"out": Tensor(2)}
    multiply = runtime.launch(
        "conv/implicit_gemm_weight_grad",
        {
            **tile.definitions(x.dtype, out.dtype),
            **occupancy.definitions(runtime.features.architecture),
            "SPLIT": splits > 1,
            "OUT_LANES": 1 if p.n % 4 or not out.aligned else 4,
        },
        {
            "g": Tensor(0),
            "x": Tensor(1),
            **result,
            "k_per_split": k_per_split,
            **geometry_args(p),
            **output.args(),
        },
        (tiles * tile.group, splits, g.groups),
        (tile.group, 1, 1),
    )
    partials = Partials(3, splits, g.groups, p.m, p.n, x.dtype, out.dtype)
    return _reduced(runtime, [multiply], (), partials, None, 2, output)


def _correlate(runtime: Runtime, packed: _PackedProduct, c: Convolution) -> Launch | Declined:
    p, x, out = packed.product, c.first, c.out
    tile = choose_tile(runtime, p.m, x.dtype, out.dtype, c.precision, weight_grad=False)
    reason = _refusal(runtime, tile.group, x, c.second)
    # The first tap of a separate phase is at most one tap later than the first of all phases.
    lengths = (length + packed.separate for length in p.term_lengths)
    windows = (length * step for length, step in zip(lengths, p.term_step, strict=True))
    if not reason and max(*p.size, *p.column_lengths, *windows, *map(abs, p.origin)) >= POSITION_LIMIT:
        reason = _too_far_reason()
    if reason:
        return Declined(reason)
    first = c.target + 1
    padded_m, padded_k = round_up(p.m, tile.rows), round_up(p.k, tile.depth)
    pack = _pack(runtime, packed, c, tile, (padded_m, padded_k))
    tiles = padded_m // tile.rows * ceil_div(p.n, tile.columns)
    splits, k_per_split = split_tile(runtime, tile, tiles * p.groups, padded_k)
    split = splits > 1
    args: Args = {
        "packed": Workspace(first),
        "k_offsets": Workspace(first + 1),
        "x": Tensor(0),
        "k_per_split": k_per_split,
        **({"partial": Workspace(first + 2)} if split else {"out": Tensor(c.target)}),
        **geometry_args(p),
        "k": padded_k,
        **packed.output.args(),
        "rows_per_table": padded_m // packed.tables,
    }
    biased = c.bias is not None and not split
    if biased and c.bias is not None:
        args["bias"] = Tensor(c.bias)
    quads = p.n % 4 == 0 if split else packed.output.phases == (1, 1) and stores_vectors(p, out, 4)
    multiply = runtime.launch(
        "conv/implicit_gemm",
        {
            **tile.definitions(x.dtype, out.dtype),
            **occupancy.definitions(runtime.features.architecture),
            "BIAS": biased,
            "SPLIT": split,
            "OUT_LANES": 4 if quads else 1,
            **({"ABSENT_TAPS": True} if packed.absent_taps else {}),
        },
        args,
        (tiles * tile.group, splits, p.groups),
        (tile.group, 1, 1),
    )
    itemsize = 2 * tile.terms or (8 if real_type(out.dtype) == "double" else 4)
    workspace = (p.groups * padded_k * padded_m * itemsize, packed.tables * padded_k * 8)
    partials = Partials(first + 2, splits, p.groups, p.m, p.n, x.dtype, out.dtype)
    return _reduced(runtime, [pack, multiply], workspace, partials, c.bias, c.target, packed.output)


def _pack(
    runtime: Runtime, packed: _PackedProduct, c: Convolution, tile: TileConfig, padded: tuple[int, int]
) -> Launch:
    """Build the launch that packs the weights and the k axis' offsets into the first two workspaces."""
    first = c.target + 1
    padded_m, padded_k = padded
    group = filled(runtime.features, _PACK_GROUP)
    return runtime.launch(
        "conv/implicit_gemm_pack",
        {
            "DTYPE": c.second.dtype.name,
            "REAL": real_type(c.out.dtype),
            "BF16_TERMS": tile.terms,
            "HALF_TYPE": half_type(c.first.dtype),
            "DEPTH": tile.depth,
        },
        {
            "packed": Workspace(first),
            "k_offsets": Workspace(first + 1),
            "weight": Tensor(1),
            "padded_m": padded_m,
            "padded_k": padded_k,
            **geometry_args(packed.product),
            **packed.tap_args(),
        },
        (padded_m, padded_k // 2 if tile.terms else padded_k, packed.product.groups),
        (group, 1, 1),
    )


def _reduced(
    runtime: Runtime,
    steps: list[Launch],
    workspace: tuple[int, ...],
    partials: Partials,
    bias: int | None,
    target: int,
    output: OutputIndex,
) -> Launch:
    """Build the sequence of `steps`, followed by a reduction of their partial results if k is split."""
    if partials.splits == 1:
        return LaunchSequence(steps, workspace)
    reduce = reduction(runtime, partials, bias, target, output)
    return LaunchSequence([*steps, reduce], (*workspace, partials.nbytes))


def _too_far(g: Geometry) -> str:
    windows = (kernel * dilation for kernel, dilation in zip(g.kernel, g.dilation, strict=True))
    return _too_far_reason() if max(*g.size, *g.result, *g.padding, *windows) >= POSITION_LIMIT else ""


def _too_far_reason() -> str:
    return f"an image, padding or window of {POSITION_LIMIT} pixels or more"


def _refusal(runtime: Runtime, group: int, *specs: Spec) -> str:
    """Return the reason why the kernels do not support these operands; empty if they do."""
    if runtime.features.max_group_size < group:
        return f"groups of {group} work-items are more than the device supports"
    for spec in specs:
        span = sum((length - 1) * abs(step) for length, step in zip(spec.shape, spec.strides, strict=True))
        if span >= 1 << 31:
            return "an operand spans 2^31 elements or more"
    return ""
