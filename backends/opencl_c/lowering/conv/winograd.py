"""Winograd convolution F(2x2, 3x3) on GPUs: windows of 3 by 3 and stride 1 in full float32, with many channels and filters.

The transforms read and write four times the pixels, so that fewer multiplications pay only for many channels: on an H200, 128
channels of 28 x 28 pixels take 127 µs for 212, and 64 of 56 x 56 take 177 for 214. With few filters
conv/winograd_fused.py is faster.
"""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Pair
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.lowering.conv import winograd_fused
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.winograd_tile import TILE
from polyhal.backends.opencl_c.lowering.conv.winograd_windows import Windows, of_forward, of_input_grad, suits
from polyhal.backends.opencl_c.lowering.gemm import dispatch as gemm
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import Launch, SimpleLaunch

_TILE = 16
"""Elements of a transformed tile, 4 by 4."""
_MIN_CHANNELS = 64
"""Minimum channels and filters for which the transforms cost less than the multiplications that they save."""
_MIN_TILES = 1024
"""Minimum columns of the products for which they fill the device."""
_ALIGNED = 4
"""Columns that tiles are padded to, for vectors."""
_MAX_BYTES = 1 << 30
"""Maximum bytes of transformed pixels and of sums."""


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the convolution, with its bias; None if another kernel is faster or needed."""
    return _fastest(runtime, c, of_forward(c)) if suits(runtime, c) else None


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the input gradient, as a convolution with flipped windows; None if another kernel is faster."""
    return _fastest(runtime, c, of_input_grad(c)) if suits(runtime, c) else None


def _fastest(runtime: Runtime, c: Convolution, w: Windows) -> Launch | None:
    if min(w.channels, w.filters) < _MIN_CHANNELS or w.tiles < _MIN_TILES:
        return None
    if winograd_fused.is_faster(runtime, w):
        return winograd_fused.build(runtime, c, w, TILE)
    return build(runtime, c, w) if 4 * _TILE * max(w.channels, w.filters) * w.tiles <= _MAX_BYTES else None


def build(runtime: Runtime, c: Convolution, w: Windows) -> Launch:
    """Build the launches: transforms of weights and pixels, products, and the transform of their sums."""
    place = c.target + 1
    columns = round_up(w.tiles, _ALIGNED)
    geometry: Args = {**w.args(c), "columns": columns}
    group = runtime.features.group_size

    def launch(kernel: str, args: Args, lengths: Pair, bias: bool = False) -> Launch:
        return runtime.launch(
            "conv/winograd", {"BIAS": bias}, args | geometry, (lengths[0], lengths[1]), (group, 1), kernel=kernel
        )

    filters = launch("winograd_filters", {"w": Tensor(1), "transformed": Workspace(place)}, (w.channels, w.filters))
    pixels = launch("winograd_tiles", {"x": Tensor(0), "transformed": Workspace(place + 1)}, (columns, w.channels))
    read: Args = {"sums": Workspace(place + 2), "x": Tensor(0), "w": Tensor(1), "out": Tensor(c.target)}
    if c.bias is not None:
        read["bias"] = Tensor(c.bias)
    results = launch("winograd_results", read, (w.tiles, w.filters), c.bias is not None)
    shapes = ((_TILE, w.filters, w.channels), (_TILE, w.channels, columns), (_TILE, w.filters, columns))
    specs = {place + i: contiguous(dtypes.float32, shape) for i, shape in enumerate(shapes)}
    left, right, out = (Matrix(i, s.strides[1], 1, (0, 0, s.strides[0]), True) for i, s in specs.items())
    product = gemm.build(
        runtime,
        Product(
            (1, 1, _TILE),
            w.filters,
            columns,
            w.channels,
            left,
            right,
            out,
            dtypes.float32,
            dtypes.float32,
            None,
            place + len(specs),
            precision=c.precision,
        ),
    )

    def multiply(*args: Any) -> None:
        product(*(Ref(x, specs[i]) if i in specs else x for i, x in enumerate(args)))

    steps = (filters, pixels, SimpleLaunch(product.name, multiply), results)
    return LaunchSequence(steps, (*(s.nbytes for s in specs.values()), *product.workspace))
