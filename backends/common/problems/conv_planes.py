"""Padded layouts of images in which every tap of a convolution is a constant offset, for any stride, padding and dilation.

Each channel becomes one or more planes with rows of `pitch` pixels. Result (y, x) is column y * pitch + x of the
product; the input of a tap is that many pixels after the offset of the tap. So a vector of results needs one unaligned
load per tap, without an im2col matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.problems.conv import Geometry, Pair
from polyhal.hal.layout import Spec


@dataclass(frozen=True, slots=True)
class TapPlanes:
    """Row y of plane (i, j) holds the pixels at (y * stride + tops[i], x * stride + lefts[j]), and 0 outside the image.

    `stride` is a pair: of rows and of columns.
    """

    size: Pair
    """Height and width of the image."""
    stride: Pair
    tops: tuple[int, ...]
    lefts: tuple[int, ...]
    rows: int
    pitch: int
    length: int
    """Distance between planes, in pixels."""

    @property
    def channel(self) -> int:
        """Distance between channels, in pixels."""
        return len(self.tops) * len(self.lefts) * self.length

    def matches(self, images: Spec) -> bool:
        """Return whether images already have this layout, so that they need not be copied."""
        return (
            (self.stride, self.tops, self.lefts) == ((1, 1), (0,), (0,))
            and (self.rows, self.pitch) == self.size
            and (images.strides[3] == 1 and images.strides[2] == self.pitch)
        )


@dataclass(frozen=True, slots=True)
class Phase:
    """The `down` by `across` results that share a set of taps: every stride-th pixel of the output, starting at `first`.

    `taps` are the taps' (row, column) in the kernel, `places` their offsets in the planes, and `shifts` the (row, column)
    of the pixel that each reads for the first result.
    """

    taps: tuple[Pair, ...]
    places: tuple[int, ...]
    shifts: tuple[Pair, ...]
    down: int
    across: int
    first: Pair


def input_planes(g: Geometry, slack: int, *, gapless: bool = False) -> tuple[TapPlanes, Phase]:
    """Lay out the input for the convolution and for its weight gradient, with at least `slack` zeros after each plane.

    With `gapless`, every kernel column has separate planes, as wide as the result. This avoids unused columns between
    the rows of small results, at the cost of more planes.
    """
    down, across = _shared_planes(g, 0), _separate_planes(g, 1) if gapless else _shared_planes(g, 1)
    rows, pitch = down.length, across.length
    planes = TapPlanes(g.size, g.stride, down.origins, across.origins, rows, pitch, _length(rows, pitch, slack))
    taps = tuple((r, s) for r in range(g.kernel[0]) for s in range(g.kernel[1]))
    places = tuple(
        (i * len(across.origins) + j) * planes.length + y * pitch + x for i, y in down.taps for j, x in across.taps
    )
    shifts = tuple((r * g.dilation[0] - g.padding[0], s * g.dilation[1] - g.padding[1]) for r, s in taps)
    return planes, Phase(taps, places, shifts, *g.result, (0, 0))


def output_grad_planes(g: Geometry, pitch: int, slack: int) -> TapPlanes:
    """Lay out the output's gradient with the pitch of the input's planes, so that zeros follow each row.

    A single row needs no zeros, so that existing contiguous data may be used.
    """
    pitch = pitch if g.result[0] > 1 else g.result[1]
    return TapPlanes(g.result, (1, 1), (0,), (0,), g.result[0], pitch, _length(g.result[0], pitch, slack))


def input_grad_planes(g: Geometry, slack: int) -> tuple[TapPlanes, list[Phase]]:
    """Lay out the output's gradient for the input gradient: one phase per remainder of a pixel by the stride."""
    down, across = _phases(g, 0), _phases(g, 1)
    (top, bottom), (left, right) = _extent(down), _extent(across)
    rows, pitch = bottom - top, right - left
    planes = TapPlanes(g.result, (1, 1), (top,), (left,), rows, pitch, _length(rows, pitch, slack))
    phases = []
    for y, (height, row_taps) in enumerate(down):
        for x, (width, column_taps) in enumerate(across):
            taps = tuple((r, s) for r, _ in row_taps for s, _ in column_taps)
            places = tuple((i - top) * pitch + j - left for _, i in row_taps for _, j in column_taps)
            shifts = tuple((i, j) for _, i in row_taps for _, j in column_taps)
            phases.append(Phase(taps, places, shifts, height, width, (y, x)))
    return planes, phases


def input_grad_planes_gapless(g: Geometry, slack: int) -> tuple[TapPlanes, list[Phase]]:
    """Lay out the output's gradient without gaps. Stride 1 only: the input gradient is then a forward convolution."""
    planes, phase = input_planes(as_forward_conv(g), slack, gapless=True)
    taps = tuple((g.kernel[0] - 1 - r, g.kernel[1] - 1 - s) for r, s in phase.taps)
    return planes, [replace(phase, taps=taps)]


def as_forward_conv(g: Geometry) -> Geometry:
    """Return the input gradient as a convolution of the output's gradient with the flipped kernel. Stride 1 only."""
    down, across = (d * (k - 1) - p for d, k, p in zip(g.dilation, g.kernel, g.padding, strict=True))
    return replace(g, size=g.result, result=g.size, channels=g.filters, filters=g.channels, padding=(down, across))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Planes along one axis."""

    origins: tuple[int, ...]
    """Start of each plane in the image."""
    length: int
    """Length of every plane."""
    taps: tuple[Pair, ...]
    """Plane of each tap, and its offset in the plane."""


def _shared_planes(g: Geometry, axis: int) -> _Axis:
    """Return one plane for each remainder of the taps by the stride."""
    kernel, stride, dilation, padding = g.kernel[axis], g.stride[axis], g.dilation[axis], g.padding[axis]
    count = min(kernel, stride // math.gcd(stride, dilation))
    origins = tuple(i * dilation % stride - padding for i in range(count))
    length = g.result[axis] + (kernel - 1) * dilation // stride
    return _Axis(origins, length, tuple((t % count, t * dilation // stride) for t in range(kernel)))


def _separate_planes(g: Geometry, axis: int) -> _Axis:
    """Return one plane for each tap."""
    origins = tuple(t * g.dilation[axis] - g.padding[axis] for t in range(g.kernel[axis]))
    return _Axis(origins, g.result[axis], tuple((t, 0) for t in range(g.kernel[axis])))


_AxisPhases = list[tuple[int, list[tuple[int, int]]]]
"""Number of pixels, and (tap, first output) of each contributing tap, by remainder by the stride."""


def _phases(g: Geometry, axis: int) -> _AxisPhases:
    stride, dilation, padding = g.stride[axis], g.dilation[axis], g.padding[axis]
    phases = []
    for remainder in range(min(stride, g.size[axis])):
        ends = [(r, remainder + padding - r * dilation) for r in range(g.kernel[axis])]
        pixels = ceil_div(g.size[axis] - remainder, stride)
        phases.append((pixels, [(r, end // stride) for r, end in ends if end % stride == 0]))
    return phases


def _extent(phases: _AxisPhases) -> Pair:
    """Return the first output that any tap reads, and the end; at least one output wide per pixel."""
    firsts = [first for _, taps in phases for _, first in taps]
    ends = [first + pixels for pixels, taps in phases for _, first in taps]
    first = min(firsts, default=0)
    return first, max([*ends, *(first + pixels for pixels, _ in phases)])


def _length(rows: int, pitch: int, slack: int) -> int:
    return round_up(rows * pitch + slack, max(slack, 1))
