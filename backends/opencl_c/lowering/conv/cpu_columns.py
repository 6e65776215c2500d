"""Launches between images and the columns of matrices on CPUs: im2col, and its transposed operation, col2im.

The pixel indices that taps read are equal for all images and channels. Results with adjacent pixels, as most have at a
stride of 1, are moved as vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Geometry, Pair
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.cpu_layout import itemsize, lanes
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_ITEMS_PER_UNIT = 8
"""Work-items per compute unit."""
_WIDTHS = (16, 8, 4)
"""Vector widths of moves, in elements, widest first."""
_ELEMENTS = {2: "ushort", 4: "uint", 8: "ulong"}
"""Unsigned integers by their size."""

_Line = list[int | None]
"""Source index of each element of a line; None for zeros."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The pixels that each tap of each result reads."""

    size: Pair
    result: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def results(self) -> int:
        """Per image."""
        return math.prod(self.result)

    @property
    def pixels(self) -> int:
        """Per image."""
        return math.prod(self.size)

    def pixels_read(self, row: int, column: int) -> list[_Line]:
        """Return, for each tap, the offset of the pixel that each result reads in a plane with these strides."""
        down, across = self._axis(0), self._axis(1)
        return [
            [None if y is None or x is None else y * row + x * column for y in ys for x in xs]
            for ys in down
            for xs in across
        ]

    def results_made(self, tap_stride: int) -> list[_Line]:
        """Return, for each tap, the index of the result that reads each pixel; taps begin at multiples of `tap_stride`."""
        lines: list[_Line] = []
        for tap, read in enumerate(self.pixels_read(self.size[1], 1)):
            line: _Line = [None] * self.pixels
            for i, at in enumerate(read):
                if at is not None:
                    line[at] = tap * tap_stride + i
            lines.append(line)
        return lines

    def _axis(self, axis: int) -> list[_Line]:
        stride, limit = self.stride[axis], self.size[axis]
        starts = [tap * self.dilation[axis] - self.padding[axis] for tap in range(self.kernel[axis])]
        sources = [[start + i * stride for i in range(self.result[axis])] for start in starts]
        return [[p if 0 <= p < limit else None for p in line] for line in sources]


def windows(g: Geometry) -> Windows:
    """Return the windows of a convolution."""
    return Windows(g.size, g.result, g.kernel, g.stride, g.padding, g.dilation)


def single_pixel_windows(size: Pair) -> Windows:
    """Return windows of one pixel, with which im2col and col2im only change the order of images in memory."""
    return Windows(size, size, (1, 1), (1, 1), (0, 0), (1, 1))


def im2col(runtime: Runtime, images: Spec, tensor: int, workspace: int, w: Windows) -> tuple[Launch, int]:
    """Build the launch that writes the columns of the images in argument `tensor` to a workspace, and their bytes."""
    count, channels = images.shape[:2]
    x_image, x_channel, x_row, x_column = images.strides
    size = images.dtype.itemsize
    pattern = "SKIP" if w.stride[1] == 2 else ""
    width, lines = _split(w.pixels_read(x_row, x_column), w.result[1], runtime.features.vector_width, pattern)
    channels_each = ceil_div(channels, _ITEMS_PER_UNIT * runtime.features.compute_units)
    launch = runtime.launch(
        "conv/cpu_im2col",
        {"ELEMENT": _ELEMENTS[size], "WIDTH": width, **_definition(pattern, width)},
        {
            "x": Tensor(tensor),
            "columns": Workspace(workspace),
            "chunks": Table(tuple(n for line in lines for c in line for n in (c.start, c.source, c.inside))),
            "chunks_each": len(lines[0]),
            "images": count,
            "channels": channels,
            "channels_each": channels_each,
            "taps": w.taps,
            "results": w.results,
            "x_image": x_image,
            "x_channel": x_channel,
            "x_last": sum((n - 1) * s for n, s in zip(images.shape, images.strides, strict=True)),
        },
        (ceil_div(channels, channels_each),),
        (1,),
    )
    return launch, channels * w.taps * count * w.results * size


def col2im(runtime: Runtime, workspace: int, out: Spec, target: int, w: Windows, bias: int | None) -> Launch:
    """Build the launch that sums the columns in a workspace to images in argument `target`, which are contiguous."""
    count, channels = out.shape[:2]
    real = real_type(out.dtype)
    pattern = "SPREAD" if w.stride[1] == 2 else ""
    width, lines = _split(w.results_made(count * w.results), w.size[1], lanes(runtime, real), pattern)
    by_chunk = [[c for c in chunks if c.inside] for chunks in zip(*lines, strict=True)]
    terms = max(len(found) for found in by_chunk)
    numbers: list[int] = []
    for first, found in zip(lines[0], by_chunk, strict=True):
        numbers += [first.start, *(n for c in found for n in (c.source, c.inside)), *[0] * (2 * (terms - len(found)))]
    channels_each = ceil_div(channels, _ITEMS_PER_UNIT * runtime.features.compute_units)
    args: Args = {
        "columns": Workspace(workspace),
        "out": Tensor(target),
        "chunks": Table(tuple(numbers)),
        "chunks_each": len(by_chunk),
        "terms": terms,
        "images": count,
        "channels": channels,
        "channels_each": channels_each,
        "taps": w.taps,
        "results": w.results,
        "pixels": w.pixels,
        "last": channels * w.taps * count * w.results - 1,
    }
    if bias is not None:
        args["bias"] = Tensor(bias)
    return runtime.launch(
        "conv/cpu_col2im",
        {
            "DTYPE": out.dtype.name,
            "REAL": real,
            "ELEMENT": _ELEMENTS[itemsize(real)],
            "WIDTH": width,
            "BIAS": bias is not None,
            **_definition(pattern, width),
        },
        args,
        (ceil_div(channels, channels_each),),
        (1,),
    )


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Adjacent elements of a line that have adjacent sources or are zeros."""

    start: int
    source: int
    """Source index of the first element (virtual if it is padding)."""
    inside: int
    """Bit mask of the elements that are not padding."""


_SOURCE_OFFSETS: dict[str, Callable[[int], int]] = {
    "": lambda i: i,
    "SKIP": lambda i: 2 * i,
    "SPREAD": lambda i: i // 2,
}
"""Source index of element i of a chunk, relative to the first element's, by access pattern (see conv/cpu_gather.h)."""


def _definition(pattern: str, width: int) -> dict[str, str | int | bool]:
    return {pattern: True} if pattern and width > 1 else {}


def _split(lines: Sequence[_Line], row: int, limit: int, pattern: str) -> tuple[int, list[list[_Chunk]]]:
    """Split lines into chunks as wide as possible, up to `limit`, and return the width and the chunks of each line.

    Chunks overlap at the ends of rows of `row` elements, or of lines.
    """
    length = len(lines[0])
    for width in (w for w in _WIDTHS if w <= limit):
        for span in (s for s in (length, row) if s >= width):
            starts = [first + min(i, span - width) for first in range(0, length, span) for i in range(0, span, width)]
            chunks = [[c for start in starts if (c := _chunk(line, start, width, pattern))] for line in lines]
            if all(len(line) == len(starts) for line in chunks):
                return width, chunks
    return 1, [[_Chunk(i, at or 0, int(at is not None)) for i, at in enumerate(line)] for line in lines]


def _chunk(line: _Line, start: int, width: int, pattern: str) -> _Chunk | None:
    """Return the chunk of a line; None if its elements do not follow this access pattern."""
    found = [(i, at) for i, at in enumerate(line[start : start + width]) if at is not None]
    sources = {at - _SOURCE_OFFSETS[pattern](i) for i, at in found}
    if len(sources) > 1:
        return None
    return _Chunk(start, sources.pop() if sources else 0, sum(1 << i for i, _ in found))
