"""Convolution on Hopper's tensor cores: implicit matrix products by wgmma, of operands packed channels-last.

Rows of the products are pixels of the result (in the weight gradient, taps and channels), columns filters. At precision
`high` float32 is split into three bfloat16 terms (bf16x3), at `medium` it is rounded to one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.conv import Convolution, Correlation
from polyhal.backends.opencl_c.lowering.conv.arguments import (
    POSITION_LIMIT,
    Args,
    geometry_args,
    output_index,
    stores_vectors,
)
from polyhal.backends.opencl_c.lowering.conv.split_k import Partials, reduction
from polyhal.backends.opencl_c.lowering.conv.tile_configs import WgmmaTile, choose_wgmma_tile, half_type
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER, HOPPER
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_VECTOR = 8
"""Channels per copy of 16 bytes; packed channels are a multiple of it."""
_MAX_STORE = 16
"""Maximum bytes that a work-item stores at once."""
_PACK_TILE = 64
"""TILE of conv/wgmma_pack.cl: channels, and pixels, that a group transposes."""
_PACK_ITEMS = 256
"""ITEMS of conv/wgmma_pack.cl."""
_REDUCE_SIDE = 16
"""SIDE of conv/wgmma_split_k_reduce.cl: filters, and pairs of channel and tap, that a group transposes."""
_MIN_CHANNELS = 16
"""Minimum channels and filters for which slices and tiles are filled well enough."""
_MIN_WORK = {1: 1 << 28, 3: 1 << 29}
"""Minimum multiply-adds for which this is faster than kernels that pack less, by bfloat16 terms per element."""
_MIN_REUSE = {1: 24, 3: 96}
"""Minimum multiply-adds per packed element for which packing is faster, by bfloat16 terms per element."""

Build = Callable[[Runtime, Convolution], Launch | None]


def fastest(runtime: Runtime, c: Convolution, build: Build) -> Launch | None:
    """Return the launch of `build`, one of the three functions below; None if another kernel is faster.

    Warns if the driver rejects the kernel.
    """
    images = (c.first, c.second) if build is weight_grad else (c.first,)
    if not _packing_is_faster(runtime, c, sum(s.size for s in images)):
        return None
    try:
        return build(runtime, c)
    except KernelBuildError as error:
        text = f"a slower kernel replaces one that the driver refused: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


def _packing_is_faster(runtime: Runtime, c: Convolution, packed: int) -> bool:
    """Return whether to pack images with `packed` elements."""
    g, dtype = c.geometry, c.first.dtype
    float32 = dtype is dtypes.float32
    if runtime.features.compute_capability != HOPPER or not (float32 or dtype.itemsize == 2):
        return False
    if (float32 and c.precision == "highest") or c.out.dtype not in (dtype, dtypes.float32):
        return False
    work = g.images * g.groups * g.pixels * g.filters * g.taps
    terms = _bf16_terms(c)
    return min(g.channels, g.filters) >= _MIN_CHANNELS and work >= max(_MIN_WORK[terms], _MIN_REUSE[terms] * packed)


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the convolution, with its bias. Raises KernelBuildError."""
    return _correlate(runtime, c, [conv.forward(c.geometry, c.first, c.second, c.out)])


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the input gradient, one product per phase: remainder of a pixel's coordinates by the stride.

    Raises KernelBuildError.
    """
    g = c.geometry
    phases = conv.input_gradient(g, c.first, c.second, c.out)
    if len(phases) != math.prod(g.stride):
        # Otherwise pixels without taps would not be written.
        return None
    return _correlate(runtime, c, phases)


@dataclass(frozen=True, slots=True)
class _Packed:
    """An operand in workspace `index`, packed by conv/wgmma_pack.cl; distances count elements."""

    launch: Launch
    index: int
    pitch: int
    """Channels per pixel, padded."""
    group_size: int
    term_size: int
    nbytes: int

    def sizes(self, name: str) -> Args:
        """Return the distances of groups and terms, as arguments."""
        return {f"{name}_group_size": self.group_size, f"{name}_term_size": self.term_size}


@dataclass(frozen=True, slots=True)
class _Matrices:
    """The matrices (channel, pixel) of an operand: groups, images (or rows of weights), channels, (height, width)."""

    lengths: tuple[int, int, int, tuple[int, int]]
    strides: tuple[int, int, int, tuple[int, int]]
    first: int = 0
    """Offset of the first element."""


def _pack(runtime: Runtime, tensor: int, dtype: DType, m: _Matrices, terms: int, workspace: int) -> _Packed:
    groups, images, channels, (height, width) = m.lengths
    x_group, x_image, x_channel, (x_down, x_across) = m.strides
    pixels, pitch = images * height * width, round_up(channels, _VECTOR)
    group_size = pixels * pitch
    launch = runtime.launch(
        "conv/wgmma_pack",
        {"DTYPE": dtype.name, "HALF_TYPE": half_type(dtype), "BF16_TERMS": terms},
        {
            "x": Tensor(tensor),
            "packed": Workspace(workspace),
            "term_size": groups * group_size,
            "channels": channels,
            "pixels": pixels,
            "pitch": pitch,
            "height": height,
            "width": width,
            "first": m.first,
            "x_group": x_group,
            "x_image": x_image,
            "x_channel": x_channel,
            "x_down": x_down,
            "x_across": x_across,
        },
        (ceil_div(pixels, _PACK_TILE) * _PACK_ITEMS, ceil_div(pitch, _PACK_TILE), groups),
        (_PACK_ITEMS, 1, 1),
    )
    return _Packed(launch, workspace, pitch, group_size, groups * group_size, 2 * terms * groups * group_size)


def _pack_images(runtime: Runtime, tensor: int, x: Spec, groups: int, terms: int, workspace: int) -> _Packed:
    images, channels, *size = x.shape
    s, each = x.strides, channels // groups
    matrices = _Matrices((groups, images, each, (size[0], size[1])), (each * s[1], s[0], s[1], (s[2], s[3])))
    return _pack(runtime, tensor, x.dtype, matrices, terms, workspace)


def _correlate(runtime: Runtime, c: Convolution, products: list[Correlation]) -> Launch | None:
    first = c.target + 1
    products = [_with_positive_steps(p) for p in products]
    x = _pack_images(runtime, 0, c.first, c.geometry.groups, _bf16_terms(c), first)
    if x.group_size >= 1 << 31 or any(_largest_position(p) >= POSITION_LIMIT for p in products):
        return None
    steps: list[Launch] = [x.launch]
    workspace = [x.nbytes]
    for product in products:
        more, sizes = _product(runtime, c, product, x, first + len(workspace))
        steps += more
        workspace += sizes
    return LaunchSequence(steps, tuple(workspace))


def _bf16_terms(c: Convolution) -> int:
    return 3 if c.first.dtype is dtypes.float32 and c.precision == "high" else 1


def _largest_position(p: Correlation) -> int:
    """Return the largest position or displacement in an image."""
    windows = (step * n for step, n in zip(p.term_step, p.term_lengths, strict=True))
    ends = (abs(o) + step * n for o, step, n in zip(p.origin, p.column_step, p.column_lengths, strict=True))
    return max(*windows, *ends, *p.size)


def _with_positive_steps(p: Correlation) -> Correlation:
    """Return an equal product with taps in the opposite order along axes whose step is negative."""
    offset, strides, steps, origin = p.a_offset, list(p.a_terms), list(p.term_step), list(p.origin)
    for axis in range(2):
        if steps[axis] < 0:
            last = p.term_lengths[axis] - 1
            offset += last * strides[axis + 1]
            origin[axis] += last * steps[axis]
            strides[axis + 1] *= -1
            steps[axis] *= -1
    return replace(
        p,
        a_offset=offset,
        a_terms=(strides[0], strides[1], strides[2]),
        term_step=(steps[0], steps[1]),
        origin=(origin[0], origin[1]),
    )


def _product(
    runtime: Runtime, c: Convolution, p: Correlation, x: _Packed, index: int
) -> tuple[list[Launch], list[int]]:
    """Return the launches of one product, and the bytes of their workspaces, which begin at index `index`."""
    terms, taps = _bf16_terms(c), math.prod(p.term_lengths)
    matrices = _Matrices(
        (p.groups, p.m, p.k // taps, p.term_lengths), (p.a_group, p.a_row, p.a_terms[0], p.a_terms[1:]), p.a_offset
    )
    weight = _pack(runtime, 1, c.second.dtype, matrices, terms, index)
    k = taps * weight.pitch
    tile, splits, k_per_split = choose_wgmma_tile(runtime, terms, (p.n, p.m, k, p.groups), splittable=p.out_offset == 0)
    split, output = splits > 1, output_index(p)
    lanes = (4 if p.n % 4 == 0 else 1) if split else _store_lanes(p, c.out)
    args: Args = {
        "x": Workspace(x.index),
        "weight": Workspace(index),
        "k_per_split": k_per_split,
        "pitch": x.pitch,
        **x.sizes("x"),
        "weight_term_size": weight.term_size,
        **geometry_args(p),
        "k": k,
        **output.args(),
    }
    args |= {"partial": Workspace(index + 1)} if split else {"out": Tensor(c.target), "out_first": p.out_offset}
    biased = c.bias is not None and not split
    if biased and c.bias is not None:
        args["bias"] = Tensor(c.bias)
    multiply = _launch(
        runtime,
        "conv/wgmma",
        c,
        tile,
        splits,
        (p.n, p.m, p.groups),
        args,
        {
            "BIAS": biased,
            "BIAS_DTYPE": c.first.dtype.name,
            "OUT_DTYPE": c.out.dtype.name,
            "OUT_LANES": lanes,
            "SPLIT": split,
        },
    )
    if not split:
        return [weight.launch, multiply], [weight.nbytes]
    partials = Partials(index + 1, splits, p.groups, p.m, p.n, c.first.dtype, c.out.dtype)
    reduce = reduction(runtime, partials, c.bias, c.target, output)
    return [weight.launch, multiply, reduce], [weight.nbytes, partials.nbytes]


def _store_lanes(p: Correlation, out: Spec) -> int:
    """Return how many contiguous pixels are stored at once."""
    vectors = (n for n in (8, 4) if n * out.dtype.itemsize <= _MAX_STORE)
    return next((n for n in vectors if stores_vectors(p, out, n)), 1)


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the weight gradient. Raises KernelBuildError."""
    geometry, terms, first = c.geometry, _bf16_terms(c), c.target + 1
    p = conv.weight_gradient(geometry, c.first, c.second, c.out)
    g = _pack_images(runtime, 0, c.first, p.groups, terms, first)
    x = _pack_images(runtime, 1, c.second, p.groups, terms, first + 1)
    ends = (abs(o) + step * n for o, step, n in zip(p.origin, p.term_step, p.term_lengths, strict=True))
    windows = (step * n for step, n in zip(p.column_step, p.column_lengths, strict=True))
    if max(*ends, *windows, *p.size) >= POSITION_LIMIT or max(x.group_size, g.group_size) >= 1 << 31:
        return None
    taps = math.prod(p.column_lengths)
    rows = taps * x.pitch
    tile, splits, k_per_split = choose_wgmma_tile(runtime, terms, (rows, p.m, p.k, p.groups))
    size = p.groups * rows * p.m
    multiply = _launch(
        runtime,
        "conv/wgmma_weight_grad",
        c,
        tile,
        splits,
        (rows, p.m, p.groups),
        {
            "x": Workspace(x.index),
            "g": Workspace(g.index),
            "partial": Workspace(first + 2),
            "rows": rows,
            "k_per_split": k_per_split,
            "x_pitch": x.pitch,
            "g_pitch": g.pitch,
            **x.sizes("x"),
            **g.sizes("g"),
            **geometry_args(p),
        },
        {"OUT_LANES": 1 if p.m % 4 else 4},
    )
    out_filter, out_channel, out_down, out_across = c.out.strides
    reduce = runtime.launch(
        "conv/wgmma_split_k_reduce",
        {"OUT_DTYPE": c.out.dtype.name},
        {
            "partial": Workspace(first + 2),
            "out": Tensor(c.target),
            "size": size,
            "filters": p.m,
            "channels": geometry.channels,
            "pitch": x.pitch,
            "taps": taps,
            "taps_across": p.column_lengths[1],
            "splits": splits,
            "out_group": p.out_group,
            "out_filter": out_filter,
            "out_channel": out_channel,
            "out_down": out_down,
            "out_across": out_across,
        },
        (ceil_div(geometry.channels * taps, _REDUCE_SIDE) * _REDUCE_SIDE**2, ceil_div(p.m, _REDUCE_SIDE), p.groups),
        (_REDUCE_SIDE**2, 1, 1),
    )
    workspace = (g.nbytes, x.nbytes, 4 * splits * size)
    return LaunchSequence([g.launch, x.launch, multiply, reduce], workspace)


def _launch(
    runtime: Runtime,
    kernel: str,
    c: Convolution,
    tile: WgmmaTile,
    splits: int,
    shape: tuple[int, int, int],
    args: Args,
    definitions: dict[str, str | int | bool],
) -> Launch:
    tensor_cores = runtime.features.tensor_cores
    rows, columns, groups = shape
    tiles = ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns)
    return runtime.launch(
        kernel,
        {
            **tile.definitions,
            **definitions,
            "DTYPE": half_type(c.first.dtype),
            "BF16_TERMS": _bf16_terms(c),
            "TENSOR_CORES": tensor_cores,
        },
        args,
        (tiles * tile.items, splits, groups),
        (tile.items, 1, 1),
        target=EXTENDED_HOPPER if tensor_cores else None,
    )
