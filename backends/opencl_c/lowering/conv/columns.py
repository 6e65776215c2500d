"""Input gradients in 16 bits of convolutions with few channels: products on tensor cores, whose columns are then added up.

Tiles of a product whose rows or columns are few channels would be mostly empty: here all taps of all channels are rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.lowering.gemm import dispatch as gemm
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, Spec, collapse, contiguous
from polyhal.hal.protocol import Launch, SimpleLaunch

_MAX_CHANNELS = 4
_MIN_TAPS = 32
"""Minimum rows of the product, for which tiles are filled well enough."""
_MIN_WORK = 1 << 28
"""Minimum multiply-adds for which this is faster than kernels with fewer launches."""
_MAX_BYTES = 128 << 20
"""Maximum memory for columns: images take turns."""


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the gradient; None if another kernel is faster or needed."""
    g = c.geometry
    if not runtime.features.tensor_cores or c.first.dtype not in (dtypes.float16, dtypes.bfloat16) or g.groups > 1:
        return None
    if g.channels > _MAX_CHANNELS or g.taps < _MIN_TAPS:
        return None
    if g.images * g.pixels * g.filters * g.taps < _MIN_WORK:
        return None
    each = max(1, min(g.images, _MAX_BYTES // (4 * g.taps * g.pixels)))
    each = ceil_div(g.images, ceil_div(g.images, each))
    return build(runtime, c, each)


def build(runtime: Runtime, c: Convolution, each: int) -> Launch | None:
    """Build the launches for `each` images at a time."""
    g = c.geometry
    place, rows = c.target + 1, _rows(c)
    if rows is None:
        return None
    parts = {n: _part(runtime, c, n, place, rows) for n in {each, g.images % each or each}}
    if None in parts.values():
        return None
    steps: list[Launch] = []
    for first in range(0, g.images, each):
        part = parts[min(each, g.images - first)]
        assert part is not None
        steps.append(_from_image(part, c, first))
    workspace = [max(sizes) for sizes in zip(*(p.workspace for p in parts.values() if p), strict=True)]
    return LaunchSequence(steps, tuple(workspace))


def _from_image(part: Launch, c: Convolution, first: int) -> Launch:
    def run(*args: Any) -> None:
        moved = list(args)
        for place, spec in ((0, c.first), (c.target, c.out)):
            ref = args[place]
            moved[place] = Ref(ref.handle, ref.spec, ref.offset + first * spec.strides[0])
        part(*moved)

    return SimpleLaunch(part.name, run)


def _rows(c: Convolution) -> tuple[int, int] | None:
    """Return the distances of channels and of taps in the dense weight of a filter; None for other layouts."""
    g, (filter_, channel, *taps) = c.geometry, c.second.strides
    steps = (math.prod(g.kernel), 1) if g.channels == 1 or channel != 1 else (1, g.channels)
    dense = filter_ == g.taps and (channel, *taps) == (steps[0], g.kernel[1] * steps[1], steps[1])
    return steps if dense else None


def _part(runtime: Runtime, c: Convolution, images: int, place: int, rows: tuple[int, int]) -> Launch | None:
    """Build the launches for some images; their columns are workspace `place`."""
    g, grad, out = c.geometry, c.first, c.out
    image, channel, down, across = grad.strides
    lengths, (steps,) = collapse((images, *g.result), ((image, down, across),))
    if len(lengths) == 1:
        batch, n, pixel, step = 1, lengths[0], steps[0], 0
    elif len(lengths) == 2:
        batch, n, pixel, step = images, g.pixels, steps[1], image
    else:
        return None
    size = g.taps * n
    columns = contiguous(dtypes.float32, (batch, g.taps, n))
    product = gemm.build(
        runtime,
        Product(
            (1, 1, batch),
            g.taps,
            n,
            g.filters,
            Matrix(1, 1, g.taps, (0, 0, 0), c.second.aligned),
            Matrix(0, channel, pixel, (0, 0, step), grad.aligned and image % 8 == 0),
            Matrix(c.target, n, 1, (batch * size, batch * size, size), True),
            grad.dtype,
            dtypes.float32,
            None,
            place + 1,
        ),
    )
    group = runtime.features.group_size
    pixels = images * math.prod(g.size)
    add = runtime.launch(
        "conv/col2im",
        {
            "OUT_DTYPE": out.dtype.name,
            "CHANNELS": g.channels,
            "KERNEL_H": g.kernel[0],
            "KERNEL_W": g.kernel[1],
            "STRIDE_Y": g.stride[0],
            "STRIDE_X": g.stride[1],
        },
        {
            "columns": Workspace(place),
            "out": Tensor(c.target),
            "column_channel": rows[0] * n,
            "column_tap": rows[1] * n,
            "column_image": g.pixels if batch == 1 else size,
            **dict(zip(("out_image", "out_channel", "out_down", "out_across"), out.strides, strict=True)),
            "pixels": pixels,
            "height": g.size[0],
            "width": g.size[1],
            "down": g.result[0],
            "across": g.result[1],
            "padding_y": g.padding[0],
            "padding_x": g.padding[1],
            "dilation_y": g.dilation[0],
            "dilation_x": g.dilation[1],
        },
        (ceil_div(pixels, group) * group,),
        (group,),
    )
    multiply = SimpleLaunch(product.name, _into(product, c.target, place, columns))
    return LaunchSequence((multiply, add), (columns.nbytes, *product.workspace))


def _into(product: Launch, target: int, place: int, columns: Spec) -> Callable[..., None]:
    """Return a function that runs a product with workspace `place` as its result."""
    return lambda *args: product(*args[:target], Ref(args[place], columns), *args[target + 1 :])
