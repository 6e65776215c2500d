"""Convolution on Hopper's tensor cores: products by wgmma of operands that were laid out with their channels side by side.

Rows of the products are pixels of the result (in the gradient of the weight: taps and channels), columns filters.
Float32 is multiplied in bfloat16 parts, of which `high` takes three.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.conv import Convolution, Correlation
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.conv import split_k
from polyhal.backends.opencl.lowering.conv.tile_configs import Teams, choose_teams, half_type
from polyhal.backends.opencl.lowering.gemm.arguments import ints, longs, uints, ulongs
from polyhal.backends.opencl.ptx import EXTENDED_HOPPER, HOPPER
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_PIECE = 8
"""Channels of one copy."""
_LARGEST = 16
"""Bytes that one work-item stores at once."""
_TILE = 64
"""Channels, and places, that a group of conv/wgmma_pack.cl turns round."""
_PACKERS = 256
_SIDE = 16
"""Filters, and taps of channels, that a group of conv/wgmma_split_k_reduce.cl turns round."""
_ROOM = 1 << 14
"""See conv/output_index.h."""
_FEWEST = 16
"""Channels, and filters, from which on strips and tiles are filled well enough."""
_WORTH = {1: 1 << 28, 3: 1 << 29}
"""Multiplications from which on this costs less than the kernels that need little laid out, by the number of parts."""
_REUSE = {1: 24, 3: 96}
"""Multiplications per element that is laid out from which on that pays."""

Step = Callable[..., None]
Build = Callable[[Runtime, Convolution], Launch | None]


def fastest(runtime: Runtime, c: Convolution, build: Build) -> Launch | None:
    """One of the three functions below, or None where another way is better.

    Warns where the driver refuses the kernel.
    """
    images = (c.first, c.second) if build is weight_grad else (c.first,)
    if not _pays(runtime, c, sum(s.size for s in images)):
        return None
    try:
        return build(runtime, c)
    except KernelBuildError as error:
        text = f"a slower kernel takes the place of one that was refused: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


def _pays(runtime: Runtime, c: Convolution, read: int) -> bool:
    """Whether to lay out images of `read` elements."""
    g, dtype = c.geometry, c.first.dtype
    single = dtype is dtypes.float32
    if runtime.features.compute_capability != HOPPER or not (single or dtype.itemsize == 2):
        return False
    if (single and c.precision == "highest") or c.out.dtype not in (dtype, dtypes.float32):
        return False
    work = g.images * g.groups * g.pixels * g.filters * g.taps
    return min(g.channels, g.filters) >= _FEWEST and work >= max(_WORTH[_parts(c)], _REUSE[_parts(c)] * read)


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Raises KernelBuildError."""
    return _correlate(runtime, "conv2d", c, [conv.forward(c.geometry, c.first, c.second, c.out)])


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """One product for every remainder of a pixel's place by the stride. Raises KernelBuildError."""
    g = c.geometry
    phases = conv.input_gradient(g, c.first, c.second, c.out)
    if len(phases) != math.prod(g.stride):
        # Some pixels are reached by no tap.
        return None
    return _correlate(runtime, "conv2d_input_grad", c, phases)


@dataclass(frozen=True, slots=True)
class _Packed:
    """An operand in workspace `place` as conv/wgmma_pack.cl lays it out; distances count elements."""

    launch: Launch
    place: int
    pitch: int
    group: int
    part: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Matrices:
    """Where the matrices (channel, place) of an operand lie: groups, images (or rows of weights), channels, lines."""

    lengths: tuple[int, int, int, tuple[int, int]]
    strides: tuple[int, int, int, tuple[int, int]]
    first: int = 0


def _pack(runtime: Runtime, place: int, dtype: DType, m: _Matrices, parts: int, workspace: int) -> _Packed:
    groups, images, channels, lines = m.lengths
    places, pitch = images * math.prod(lines), round_up(channels, _PIECE)
    group = places * pitch
    launch = runtime.launch(
        "conv2d_pack", "conv/wgmma_pack", {"DTYPE": dtype.name, "HALF_TYPE": half_type(dtype), "PARTS": parts},
        [
            Tensor(place), Workspace(workspace), Constant(groups * group, "ulong"),
            *uints(channels, places, pitch, *lines), *longs(m.first, *m.strides[:3], *m.strides[3]),
        ],
        (ceil_div(places, _TILE) * _PACKERS, ceil_div(pitch, _TILE), groups), (_PACKERS, 1, 1),
    )  # fmt: skip
    return _Packed(launch, workspace, pitch, group, groups * group, 2 * parts * groups * group)


def _images(runtime: Runtime, place: int, x: Spec, groups: int, parts: int, workspace: int) -> _Packed:
    images, channels, *size = x.shape
    s, each = x.strides, channels // groups
    matrices = _Matrices((groups, images, each, (size[0], size[1])), (each * s[1], s[0], s[1], (s[2], s[3])))
    return _pack(runtime, place, x.dtype, matrices, parts, workspace)


def _correlate(runtime: Runtime, name: str, c: Convolution, products: list[Correlation]) -> Launch | None:
    parts = _parts(c)
    first = c.target + 1
    products = [_forwards(p) for p in products]
    x = _images(runtime, 0, c.first, c.geometry.groups, parts, first)
    if x.group >= 1 << 31 or any(_reach(p) >= _ROOM for p in products):
        return None
    steps: list[Step] = [x.launch]
    workspace = [x.nbytes]
    for product in products:
        more, sizes = _product(runtime, name, c, product, x, first + len(workspace))
        steps += more
        workspace += sizes
    return LaunchSequence(name, steps, tuple(workspace))


def _parts(c: Convolution) -> int:
    return 3 if c.first.dtype is dtypes.float32 and c.precision == "high" else 1


def _reach(p: Correlation) -> int:
    """The largest coordinate or displacement in an image."""
    windows = (step * n for step, n in zip(p.term_step, p.term_lengths, strict=True))
    ends = (abs(o) + step * n for o, step, n in zip(p.origin, p.column_step, p.column_lengths, strict=True))
    return max(*windows, *ends, *p.size)


def _forwards(p: Correlation) -> Correlation:
    """The same with taps numbered so that they lead down and across."""
    offset, strides, steps, origin = p.a_offset, list(p.a_terms), list(p.term_step), list(p.origin)
    for axis in range(2):
        if steps[axis] < 0:
            last = p.term_lengths[axis] - 1
            offset += last * strides[axis + 1]
            origin[axis] += last * steps[axis]
            strides[axis + 1] *= -1
            steps[axis] *= -1
    return replace(
        p, a_offset=offset, a_terms=(strides[0], strides[1], strides[2]), term_step=(steps[0], steps[1]),
        origin=(origin[0], origin[1]),
    )  # fmt: skip


def _product(
    runtime: Runtime, name: str, c: Convolution, p: Correlation, x: _Packed, place: int
) -> tuple[list[Step], list[int]]:
    """The launches of one product, and the workspaces, from `place` on, that they need."""
    parts = _parts(c)
    taps = math.prod(p.term_lengths)
    matrices = _Matrices(
        (p.groups, p.m, p.k // taps, p.term_lengths), (p.a_group, p.a_row, p.a_terms[0], p.a_terms[1:]), p.a_offset
    )
    weight = _pack(runtime, 1, c.second.dtype, matrices, parts, place)
    k = taps * weight.pitch
    tile, splits, share = choose_teams(runtime, parts, (p.n, p.m, k, p.groups), divisible=p.out_offset == 0)
    split = splits > 1
    lanes = (4 if p.n % 4 == 0 else 1) if split else _lanes(p, c.out)
    bias: list[Parameter] = [] if c.bias is None else [Tensor(c.bias)]
    target: list[Parameter] = [Workspace(place + 1)] if split else [Tensor(c.target), *longs(p.out_offset)]
    strides = longs(p.out_group, p.out_columns[0], p.out_row, *p.out_columns[1:])
    multiply = _launch(
        runtime, name, "conv/wgmma", c, tile, splits, (p.n, p.m, p.groups),
        [
            Workspace(x.place), Workspace(place), *([] if split else bias), *target, *uints(p.n, p.m, k, share, x.pitch),
            *ulongs(x.group, x.part, weight.part), *ints(*p.size, *p.origin, *p.column_step, *p.term_step),
            *uints(p.term_lengths[1], *p.column_lengths), *strides,
        ],
        {
            "BIAS": bool(bias) and not split, "BIAS_DTYPE": c.first.dtype.name, "OUT_DTYPE": c.out.dtype.name,
            "OUT_LANES": lanes, "SPLIT": split,
        },
    )  # fmt: skip
    if not split:
        return [weight.launch, multiply], [weight.nbytes]
    shape, types = (splits, p.groups, p.m, p.n), (c.first.dtype, c.out.dtype)
    where = [*uints(*p.column_lengths, p.m, 1, 1, *p.column_lengths), *strides]
    total = split_k.total(runtime, name, types, (c.bias, c.target, place + 1), shape, where)
    return [weight.launch, multiply, total], [weight.nbytes, split_k.nbytes(shape, c.out.dtype)]


def _lanes(p: Correlation, out: Spec) -> int:
    """How many neighbouring pixels can be stored at once."""
    image, down, across = p.out_columns
    if not out.aligned or across != 1 or down != p.column_lengths[1]:
        return 1
    distances = (math.prod(p.column_lengths), image, p.out_row, p.out_group, p.out_offset)
    vectors = (n for n in (8, 4) if n * out.dtype.itemsize <= _LARGEST)
    return next((n for n in vectors if all(d % n == 0 for d in distances)), 1)


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Raises KernelBuildError."""
    g, parts, first = c.geometry, _parts(c), c.target + 1
    p = conv.weight_gradient(g, c.first, c.second, c.out)
    slope = _images(runtime, 0, c.first, g.groups, parts, first)
    x = _images(runtime, 1, c.second, g.groups, parts, first + 1)
    ends = (abs(o) + step * n for o, step, n in zip(p.origin, p.term_step, g.result, strict=True))
    windows = (step * n for step, n in zip(g.dilation, g.kernel, strict=True))
    if max(*ends, *windows, *g.size) >= _ROOM or max(x.group, slope.group) >= 1 << 31:
        return None
    taps = math.prod(g.kernel)
    rows = taps * x.pitch
    tile, shares, share = choose_teams(runtime, parts, (rows, g.filters, p.k, g.groups))
    size = g.groups * rows * g.filters
    multiply = _launch(
        runtime, "conv2d_weight_grad", "conv/wgmma_weight_grad", c, tile, shares, (rows, g.filters, g.groups),
        [
            Workspace(x.place), Workspace(slope.place), Workspace(first + 2), *uints(rows, g.filters, p.k, share),
            *ulongs(x.group, x.part), *uints(slope.pitch), *ulongs(slope.group, slope.part), *uints(*g.result),
            *ints(*g.size, *p.origin, *g.stride, *g.dilation), *uints(x.pitch, g.kernel[1]),
        ],
        {"OUT_LANES": 1 if g.filters % 4 else 4},
    )  # fmt: skip
    total = runtime.launch(
        "conv2d_weight_grad_sum", "conv/wgmma_split_k_reduce", {"OUT_DTYPE": c.out.dtype.name},
        [
            Workspace(first + 2), Tensor(c.target),
            *uints(size, g.filters, g.channels, x.pitch, taps, g.kernel[1], shares), *longs(p.out_group, *c.out.strides),
        ],
        (ceil_div(g.channels * taps, _SIDE) * _SIDE**2, ceil_div(g.filters, _SIDE), g.groups), (_SIDE**2, 1, 1),
    )  # fmt: skip
    workspace = (slope.nbytes, x.nbytes, 4 * shares * size)
    return LaunchSequence("conv2d_weight_grad", [slope.launch, x.launch, multiply, total], workspace)


def _launch(
    runtime: Runtime, name: str, kernel: str, c: Convolution, tile: Teams, splits: int, shape: tuple[int, int, int],
    parameters: list[Parameter], defined: dict[str, str | int | bool],
) -> Step:  # fmt: skip
    units = runtime.features.tensor_cores
    rows, columns, groups = shape
    tiles = ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns)
    return runtime.launch(
        name, kernel,
        {
            **tile.definitions, **defined, "DTYPE": half_type(c.first.dtype), "PARTS": _parts(c),
            "TENSOR_CORES": units,
        },
        parameters, (tiles * tile.items, splits, groups), (tile.items, 1, 1), target=EXTENDED_HOPPER if units else None,
    )  # fmt: skip
