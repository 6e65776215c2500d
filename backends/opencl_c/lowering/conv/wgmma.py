"""Convolution on Hopper's tensor cores: implicit matrix products by wgmma, of operands packed channels-last.

Rows of the products are pixels of the result (in the weight gradient, taps and channels), columns filters. At precision
`high` float32 is split into three bfloat16 terms (bf16x3), at `medium` it is rounded to one. Operands in half precision that
have this layout already are read in place, and results with channels last are stored as vectors of channels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace, after_zeros
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.conv import Convolution, Correlation
from polyhal.backends.opencl_c.lowering.conv.arguments import (
    POSITION_LIMIT,
    Args,
    geometry_args,
    output_index,
    stores_vectors,
)
from polyhal.backends.opencl_c.lowering.conv.pixel_pairs import as_pairs
from polyhal.backends.opencl_c.lowering.conv.split_k import Partials, add_up_weight_grad, flat_index, reduction
from polyhal.backends.opencl_c.lowering.conv.tile_configs import WgmmaTile, choose_wgmma_tile, half_type
from polyhal.backends.opencl_c.lowering.conv.wgmma_pack import Matrices, Packed, matrices_of, pack
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER, HOPPER
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_MAX_STORE = 16
"""Maximum bytes that a work-item stores at once."""
_MIN_FILTERS = 16
"""Minimum columns of a product, filters or the input gradient's channels, for which tiles are filled well enough."""
_MIN_CHANNELS = {1: 3, 3: 16}
"""Minimum terms per tap for which padding them to whole vectors is faster, by bfloat16 terms per element."""
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
    groups = c.geometry.groups
    packed = sum(s.size for s in images if not matrices_of(s, groups).is_packed(s, _bf16_terms(c)))
    per_tap, columns = c.geometry.channels, c.geometry.filters
    if build is input_grad:
        per_tap, columns = columns, per_tap
    if not _packing_is_faster(runtime, c, packed, per_tap, columns):
        return None
    try:
        return build(runtime, c)
    except KernelBuildError as error:
        text = f"a slower kernel replaces one that the driver refused: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


def _packing_is_faster(runtime: Runtime, c: Convolution, packed: int, per_tap: int, columns: int) -> bool:
    """Return whether to pack images with `packed` elements, for a product with `per_tap` terms per tap and `columns`."""
    g, dtype = c.geometry, c.first.dtype
    float32 = dtype is dtypes.float32
    if runtime.features.compute_capability != HOPPER or not (float32 or dtype.itemsize == 2):
        return False
    if (float32 and c.precision == "highest") or c.out.dtype not in (dtype, dtypes.float32):
        return False
    work = g.images * g.groups * g.pixels * g.filters * g.taps
    terms = _bf16_terms(c)
    if per_tap < _MIN_CHANNELS[terms] or columns < _MIN_FILTERS:
        return False
    return work >= max(_MIN_WORK[terms], _MIN_REUSE[terms] * packed)


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the convolution, with its bias. Raises KernelBuildError."""
    pairs = as_pairs(c)
    if pairs is None:
        return _correlate(runtime, c, [conv.forward(c.geometry, c.first, c.second, c.out)])
    terms, first = _bf16_terms(c), c.target + 1
    x, images = pairs.pack(runtime, 0, c.first, pairs.images, terms, first)
    weight, filters = pairs.pack(runtime, 1, c.second, pairs.weight, terms, first + 1)
    product = conv.forward(pairs.geometry, images, filters, c.out)
    return _correlate(runtime, c, [product], x, weight)


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the input gradient, one product per phase: remainder of a pixel's coordinates by the stride.

    Raises KernelBuildError.
    """
    g = c.geometry
    phases = conv.input_gradient(g, c.first, c.second, c.out)
    launch = _correlate(runtime, c, phases)
    if launch is None or len(phases) == math.prod(g.stride):
        return launch
    # Pixels without taps are not written by any product.
    return after_zeros(copy.fill(runtime, c.out), launch, c.target)


def _correlate(
    runtime: Runtime,
    c: Convolution,
    products: list[Correlation],
    x: Packed | None = None,
    weight: Packed | None = None,
) -> Launch | None:
    """Build the launches of products, after packing their operands unless packed ones are given."""
    first = c.target + 1
    products = [_with_positive_steps(p) for p in products]
    if x is None:
        x = pack(runtime, 0, c.first, matrices_of(c.first, c.geometry.groups), _bf16_terms(c), first)
    if x.group_size >= 1 << 31 or any(_largest_position(p) >= POSITION_LIMIT for p in products):
        return None
    steps: list[Launch] = list(x.steps)
    workspace = list(x.workspace)
    for product in products:
        more, sizes = _product(runtime, c, product, x, weight, first + len(workspace))
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
    runtime: Runtime, c: Convolution, p: Correlation, x: Packed, weight: Packed | None, index: int
) -> tuple[list[Launch], list[int]]:
    """Return the launches of one product, and the bytes of their workspaces, which begin at index `index`."""
    terms, taps = _bf16_terms(c), math.prod(p.term_lengths)
    matrices = Matrices(
        (p.groups, p.m, p.k // taps, p.term_lengths), (p.a_group, p.a_row, p.a_terms[0], p.a_terms[1:]), p.a_offset
    )
    weight = weight or pack(runtime, 1, c.second, matrices, terms, index)
    workspace = list(weight.workspace)
    k = taps * weight.pitch
    channels_last = p.out_row == 1 and math.prod(p.column_lengths) > 1
    # With channels last, conv/split_k_reduce.cl adds up contiguous results only.
    splittable = p.out_offset == 0 and (not channels_last or (c.bias is None and _is_dense(p)))
    tile, splits, k_per_split = choose_wgmma_tile(runtime, terms, (p.n, p.m, k, p.groups), splittable=splittable)
    split, output = splits > 1, output_index(p)
    lanes = (4 if (p.m if channels_last else p.n) % 4 == 0 else 1) if split else _store_lanes(p, c.out)
    args: Args = {
        "x": x.memory,
        "weight": weight.memory,
        "k_per_split": k_per_split,
        "pitch": x.pitch,
        **x.sizes("x"),
        "weight_term_size": weight.term_size,
        **geometry_args(p),
        "k": k,
        **output.args(),
    }
    partial = index + len(workspace)
    args |= {"partial": Workspace(partial)} if split else {"out": Tensor(c.target), "out_first": p.out_offset}
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
            "CHANNELS_LAST": channels_last,
            "DENSE": channels_last and _is_dense(p),
            "X_IN_PLACE": x.in_place,
            "WEIGHT_IN_PLACE": weight.in_place,
        },
    )
    if not split:
        return [*weight.steps, multiply], workspace
    shape = (1, 1, c.out.size) if channels_last else (p.groups, p.m, p.n)
    partials = Partials(partial, splits, *shape, c.first.dtype, c.out.dtype)
    reduce = reduction(runtime, partials, c.bias, c.target, flat_index(c.out.size) if channels_last else output)
    return [*weight.steps, multiply, reduce], [*workspace, partials.nbytes]


def _is_dense(p: Correlation) -> bool:
    """Return whether the result is contiguous with channels last."""
    height, width = p.column_lengths
    return p.groups == 1 and p.out_columns == (height * width * p.m, width * p.m, p.m)


def _store_lanes(p: Correlation, out: Spec) -> int:
    """Return how many contiguous pixels, or channels, are stored at once."""
    vectors = (n for n in (8, 4) if n * out.dtype.itemsize <= _MAX_STORE)
    if p.out_row != 1 or math.prod(p.column_lengths) == 1:
        return next((n for n in vectors if stores_vectors(p, out, n)), 1)
    distances = (p.m, p.out_group, *p.out_columns, p.out_offset)
    return next((n for n in vectors if out.aligned and all(d % n == 0 for d in distances)), 1)


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the weight gradient. Raises KernelBuildError."""
    geometry, terms, first = c.geometry, _bf16_terms(c), c.target + 1
    p, pairs = conv.weight_gradient(geometry, c.first, c.second, c.out), as_pairs(c)
    g = pack(runtime, 0, c.first, matrices_of(c.first, p.groups), terms, first)
    if pairs is None:
        x = pack(runtime, 1, c.second, matrices_of(c.second, p.groups), terms, first + len(g.workspace))
    else:
        x, images = pairs.pack(runtime, 1, c.second, pairs.images, terms, first + len(g.workspace))
        p = conv.weight_gradient(pairs.geometry, c.first, images, c.out)
    partial = first + len(g.workspace) + len(x.workspace)
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
            "x": x.memory,
            "g": g.memory,
            "partial": Workspace(partial),
            "rows": rows,
            "k_per_split": k_per_split,
            "x_pitch": x.pitch,
            "g_pitch": g.pitch,
            **x.sizes("x"),
            **g.sizes("g"),
            **geometry_args(p),
        },
        {"OUT_LANES": 1 if p.m % 4 else 4, "X_IN_PLACE": x.in_place, "G_IN_PLACE": g.in_place},
    )
    reduce = add_up_weight_grad(runtime, c, p, partial, splits, x.pitch, None if pairs is None else pairs.reduction)
    workspace = (*g.workspace, *x.workspace, 4 * splits * size)
    return LaunchSequence([*g.steps, *x.steps, multiply, reduce], workspace)


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
