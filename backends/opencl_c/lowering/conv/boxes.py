"""Convolutions of images with channels last by wgmma, with operands copied in boxes of pixels by Hopper's copy engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Strided, Tensor, Workspace, after_zeros
from polyhal.backends.common.launching.split_k import SplitK, split_k
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.conv import Convolution, Correlation, Pair
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.lowering.conv.arguments import Args, geometry_args
from polyhal.backends.opencl_c.lowering.conv.split_k import add_up_weight_grad
from polyhal.backends.opencl_c.lowering.conv.wgmma_pack import Matrices, pack
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.support.column_moments import column_moments
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER, Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_HALF_DTYPES = (dtypes.float16, dtypes.bfloat16)
_PIXELS = 64
"""Pixels of a box, and channels of a slice."""
_VECTOR = 8
"""Elements that divide the strides of a copied tensor."""
_MAX_STEP = 4
"""Maximum distance of pixels in a box; the copy engine's boxes have up to 256 pixels along an axis."""
_NO_MOMENTS: Arguments = {}
_MAPS = 2
_MAP_BYTES = 128
_OTHER_MEMORY = 1 << 10
"""Maximum bytes of local memory of a group for anything but its k-tiles."""
_MIN_BOXES = 8
"""Minimum boxes of pixels per split of the weight gradient."""
_MAX_SPLITS, _MAX_ROUNDS = 128, 3
"""Maximum splits of the weight gradient, and tiles per group among which their number is chosen."""


@dataclass(frozen=True, slots=True)
class BoxTile:
    """A tile of conv/wgmma_boxes.h, for a cluster of `groups` groups."""

    warpgroups: int
    """Warpgroups of a group that multiply, 64 rows each; one more starts copies."""
    columns: int
    stages: int
    groups: int
    speed: float
    """Multiply-adds per nanosecond and compute unit."""

    @property
    def rows(self) -> int:
        return _PIXELS * self.warpgroups * self.groups

    @property
    def items(self) -> int:
        return 128 * (self.warpgroups + 1)

    @property
    def local_memory(self) -> int:
        return self.stages * (_PIXELS * self.warpgroups + self.columns) * _PIXELS * 2 + _OTHER_MEMORY

    @property
    def macros(self) -> dict[str, int]:
        return {"WARPGROUPS": self.warpgroups, "WIDE": self.columns, "STAGES": self.stages, "CLUSTER": self.groups}

    def resident(self, runtime: Runtime) -> int:
        """Return the number of groups that a compute unit holds at a time."""
        registers = (1 << 16) // (self.items * min(168, self.columns // 2 + 50))
        return max(1, min(round(runtime.features.static_local_memory / self.local_memory), registers))


TILES = (
    BoxTile(2, 256, 4, 1, 2650.0),
    BoxTile(3, 128, 4, 1, 2320.0),
    BoxTile(2, 128, 5, 1, 2280.0),
    BoxTile(1, 128, 4, 1, 2200.0),
    BoxTile(2, 64, 4, 1, 1900.0),
    BoxTile(1, 64, 6, 1, 1500.0),
)
"""Tiles with the multiply-adds per nanosecond that a compute unit of an H200 reached with each."""
_STORE_RATE = 14
"""Results per nanosecond that a compute unit stores while its tensor cores wait; measured on an H200."""
_BANDWIDTH = 4000
"""Bytes per nanosecond to and from memory."""


@cache
def choose_box(images: int, height: int, width: int) -> Pair:
    """Return the width and height of the boxes that cover these pixels with the fewest others."""

    def covered(box: Pair) -> int:
        across, down = box
        lengths = ((width, across), (height, down), (images, _PIXELS // across // down))
        return math.prod(round_up(n, each) for n, each in lengths)

    powers = [1 << i for i in range(_PIXELS.bit_length())]
    boxes = [(across, down) for across in reversed(powers) for down in reversed(powers) if across * down <= _PIXELS]
    return min(boxes, key=covered)


def _boxes(images: int, height: int, width: int) -> tuple[Pair, int]:
    """Return the width and height of boxes of pixels, and the number of boxes that cover all pixels."""
    across, down = box = choose_box(images, height, width)
    return box, ceil_div(width, across) * ceil_div(height, down) * ceil_div(images, _PIXELS // across // down)


def suits(runtime: Runtime, c: Convolution) -> bool:
    """Return whether the copy engine can copy the images, and they fill its slices."""
    g = c.geometry
    if not runtime.features.clusters or c.first.dtype not in _HALF_DTYPES or g.groups != 1:
        return False
    if max(g.stride) > _MAX_STEP or g.channels % _VECTOR or g.filters % _VECTOR:
        return False
    return all(2 * n >= round_up(n, _PIXELS) for n in (g.channels, g.filters))


def _is_copied(x: Spec) -> bool:
    image, channel, down, across = x.strides
    return x.aligned and channel == 1 and not any(n % _VECTOR or n < 1 for n in (image, down, across))


def forward(runtime: Runtime, c: Convolution, *, moments: bool = False) -> Launch | None:
    """Build the launches of the convolution, with its bias; None if another kernel has to run.

    If `moments` is set, the last workspace receives moments of channels (lib/column_moments.h), of boxes that cover all pixels
    exactly.
    """
    if not suits(runtime, c) or not _is_copied(c.first) or c.out.strides[1] != 1:
        return None
    steps, memory, workspace, weight = _weights(runtime, c)
    p, place = conv.forward(c.geometry, c.first, weight, c.out), c.target + 1 + len(workspace)
    args, nbytes = column_moments(p.n, p.m, place + 1) if moments else ({}, ())
    launch, map_bytes = _multiply(runtime, c, p, memory, place, args)
    return LaunchSequence([*steps, launch], (*workspace, map_bytes, *nbytes))


def covers_exactly(c: Convolution) -> bool:
    """Return whether boxes cover the pixels of the result and no others."""
    g = c.geometry
    return _boxes(g.images, *g.result)[1] * _PIXELS == g.images * g.pixels


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the input gradient, one per phase; None if another kernel has to run."""
    if not suits(runtime, c) or not _is_copied(c.first) or c.out.strides[1] != 1:
        return None
    steps, memory, workspace, weight = _weights(runtime, c)
    phases = conv.input_gradient(c.geometry, c.first, weight, c.out)
    place = c.target + 1 + len(workspace)
    built = [_multiply(runtime, c, p, memory, place) for p in phases]
    launch = LaunchSequence([*steps, *(b[0] for b in built)], (*workspace, max(b[1] for b in built)))
    if len(phases) == math.prod(c.geometry.stride):
        return launch
    # Pixels without taps are not written by any product.
    return after_zeros(copy.fill(runtime, c.out), launch, c.target)


def _weights(runtime: Runtime, c: Convolution) -> tuple[tuple[Launch, ...], Tensor | Workspace, tuple[int, ...], Spec]:
    """Return the launch that packs weights with channels last, if any, their memory, its bytes, and their layout."""
    g, w = c.geometry, c.second
    if _is_copied(w):
        return (), Tensor(1), (), w
    matrices = Matrices(
        (1, g.filters, g.channels, g.kernel), (0, w.strides[0], w.strides[1], (w.strides[2], w.strides[3]))
    )
    packed = pack(runtime, 1, w, matrices, 1, c.target + 1)
    pitch, (height, width) = packed.pitch, g.kernel
    spec = Spec(w.dtype, w.shape, (height * width * pitch, 1, width * pitch, pitch), True)
    return packed.steps, packed.memory, packed.workspace, spec


def _choose(
    runtime: Runtime, rows: int, columns: int, steps: int, *, splittable: bool = False
) -> tuple[BoxTile, SplitK]:
    """Return the tile with the least modelled time for rows x columns of `steps` k-tiles, and their split."""
    units, memory = runtime.features.compute_units, runtime.features.static_local_memory
    candidates = []
    for tile in TILES:
        if tile.local_memory > memory and tile is not TILES[-1]:
            continue
        resident = tile.resident(runtime)
        tiles = ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns)
        workers = units * resident // tile.groups
        size = tile.rows // tile.groups * tile.columns * resident
        for rounds in range(1, _MAX_ROUNDS + 1) if splittable else (0,):
            split = split_k(steps, tiles, workers * rounds, _MAX_SPLITS, min_terms=_MIN_BOXES)
            waves = ceil_div(tiles * split.splits, workers)
            time = waves * size * (split.terms * _PIXELS / tile.speed + 1 / _STORE_RATE)
            if splittable:
                time += 8 * split.splits * rows * columns / _BANDWIDTH
            candidates.append((time, tile, split))
    _, tile, split = min(candidates, key=lambda candidate: candidate[0])
    return tile, split


def _multiply(
    runtime: Runtime,
    c: Convolution,
    p: Correlation,
    weight: Tensor | Workspace,
    place: int,
    moments: Arguments = _NO_MOMENTS,
) -> tuple[Launch, int]:
    """Return the launch of one product, and the bytes of its workspace `place`."""
    height, width = p.column_lengths
    images, taps = p.n // (height * width), math.prod(p.term_lengths)
    box, boxes = _boxes(images, height, width)
    tile, _ = _choose(runtime, boxes * _PIXELS, p.m, taps * ceil_div(p.k // taps, _PIXELS))
    work_tiles = ceil_div(boxes * _PIXELS, tile.rows) * ceil_div(p.m, tile.columns)
    groups = min(work_tiles, runtime.features.compute_units * tile.resident(runtime) // tile.groups) * tile.groups
    macros, more = epilogue(_as_product(c, p))
    halves = runtime.features.tensor_cores and c.out.dtype in _HALF_DTYPES
    vectors = c.out.aligned and not any(n % _VECTOR for n in (p.m, *p.out_columns, p.out_offset))
    args: Args = {
        "x": Strided(Tensor(0), {}),
        "weight": Strided(weight, {}),
        "weight_first": p.a_offset,
        **more,
        "out": Tensor(c.target),
        "out_first": p.out_offset,
        **moments,
        "maps": Workspace(place),
        "channels": p.k // taps,
        "work_tiles": work_tiles,
        **geometry_args(p),
        **dict(zip(("out_image", "out_down", "out_across"), p.out_columns, strict=True)),
    }
    launch = runtime.launch(
        "conv/wgmma_boxes",
        {
            **macros,
            **tile.macros,
            **_box_macros(box),
            "DTYPE": c.first.dtype.name,
            "OUT_DTYPE": c.out.dtype.name,
            "RIGHT_K_MAJOR": p.a_terms[0] == 1,
            "TENSOR_CORES": runtime.features.tensor_cores,
            "PAIRS": vectors,
            "SHORT_RESULTS": halves,
            "WIDTH": 8 if halves and vectors else 2,
            "MOMENTS": bool(moments),
        },
        args,
        (groups * tile.items, 1, 1),
        (tile.items, 1, 1),
        target=_target(runtime, tile),
    )
    return launch, _MAPS * _MAP_BYTES * groups


def _box_macros(box: Pair) -> dict[str, int]:
    return dict(zip(("BOX_WIDTH", "BOX_HEIGHT"), box, strict=True))


def _target(runtime: Runtime, tile: BoxTile) -> Target | None:
    if not runtime.features.tensor_cores:
        return None
    return Target(EXTENDED_HOPPER.architecture, groups=tile.resident(runtime), cluster=tile.groups)


def _as_product(c: Convolution, p: Correlation) -> Product:
    """Return a product with the bias of the convolution as its epilogue."""
    nowhere = Matrix(c.target, p.m, 1, (0, 0, 0))
    return Product(
        (1, 1, 1), p.n, p.m, p.k, nowhere, nowhere, nowhere, c.first.dtype, c.out.dtype, c.bias, c.target + 1
    )


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the weight gradient; None if another kernel has to run."""
    g = c.geometry
    if not suits(runtime, c) or not _is_copied(c.first) or not _is_copied(c.second):
        return None
    p = conv.weight_gradient(g, c.first, c.second, c.out)
    height, width = p.term_lengths
    box, boxes = _boxes(g.images, height, width)
    taps = math.prod(p.column_lengths)
    rows = taps * round_up(g.channels, _PIXELS)
    tile, split = _choose(runtime, rows, p.m, boxes, splittable=True)
    tiles = ceil_div(rows, tile.rows) * ceil_div(p.m, tile.columns)
    workers = runtime.features.compute_units * tile.resident(runtime) // tile.groups
    groups = min(tiles * split.splits, workers) * tile.groups
    launch = runtime.launch(
        "conv/wgmma_boxes_weight_grad",
        {
            **epilogue(replace(_as_product(c, p), bias=None))[0],
            **tile.macros,
            **_box_macros(box),
            "DTYPE": c.first.dtype.name,
            "OUT_DTYPE": "float32",
            "TENSOR_CORES": runtime.features.tensor_cores,
            "PAIRS": True,
        },
        {
            "x": Strided(Tensor(1), {}),
            "g": Strided(Tensor(0), {}),
            "partial": Workspace(c.target + 1),
            "maps": Workspace(c.target + 2),
            "channels": g.channels,
            "pitch": g.channels,
            "boxes_per_split": split.terms,
            "work_tiles": tiles * split.splits,
            **geometry_args(p),
        },
        (groups * tile.items, 1, 1),
        (tile.items, 1, 1),
        target=_target(runtime, tile),
    )
    reduce = add_up_weight_grad(runtime, c, p, c.target + 1, split.splits, g.channels)
    partial = 4 * split.splits * taps * g.channels * p.m
    return LaunchSequence((launch, reduce), (partial, _MAPS * _MAP_BYTES * groups))
