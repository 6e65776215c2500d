"""Layouts of images in which every tap of a convolution is a plain shift, whatever its stride, padding and dilation.

Each channel becomes one or more planes of `pitch` pixels a row. Result (y, x) is column y * pitch + x, and its tap is found
that many pixels after the tap's place. So a vector of results takes one unaligned load per tap, and nothing is unrolled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.problems.conv import Geometry, Pair
from polyhal.hal.layout import Spec


@dataclass(frozen=True, slots=True)
class Planes:
    """Plane (i, j) holds the pixel at (y * stride + tops[i], x * stride + lefts[j]) in row y, and 0 outside the image.

    `stride` is a pair for rows and columns.
    """

    size: Pair
    """Of the image."""
    stride: Pair
    tops: tuple[int, ...]
    lefts: tuple[int, ...]
    rows: int
    pitch: int
    length: int
    """Pixels from one plane to the next."""

    @property
    def channel(self) -> int:
        """Pixels from one channel to the next."""
        return len(self.tops) * len(self.lefts) * self.length

    def are(self, images: Spec) -> bool:
        """Whether the images lie like that already."""
        return (
            (self.stride, self.tops, self.lefts) == ((1, 1), (0,), (0,))
            and (self.rows, self.pitch) == self.size
            and (images.strides[3] == 1 and images.strides[2] == self.pitch)
        )


@dataclass(frozen=True, slots=True)
class Phase:
    """(down, across) results that the same taps reach: every stride-th pixel of the output from `first` on.

    `taps` are the indices of the taps in the window, `places` where they lie in planes.
    """

    taps: tuple[Pair, ...]
    places: tuple[int, ...]
    down: int
    across: int
    first: Pair


def of_input(g: Geometry, slack: int, *, gapless: bool = False) -> tuple[Planes, Phase]:
    """The input as the convolution and the gradient of its weight read it, with at least `slack` zeros after each plane.

    `gapless`: every column of the window has planes of its own, which are as wide as the result. So no columns are left
    over between the rows of small results, at the price of more planes.
    """
    down, across = _shared(g, 0), _apart(g, 1) if gapless else _shared(g, 1)
    rows, pitch = down.length, across.length
    planes = Planes(g.size, g.stride, down.origins, across.origins, rows, pitch, _length(rows, pitch, slack))
    taps = tuple((r, s) for r in range(g.kernel[0]) for s in range(g.kernel[1]))
    places = tuple(
        (i * len(across.origins) + j) * planes.length + y * pitch + x for i, y in down.taps for j, x in across.taps
    )
    return planes, Phase(taps, places, *g.result, (0, 0))


def of_slopes(g: Geometry, pitch: int, slack: int) -> Planes:
    """The output's gradient with the pitch of the input's planes: zeros follow each row."""
    return Planes(g.result, (1, 1), (0,), (0,), g.result[0], pitch, _length(g.result[0], pitch, slack))


def of_gradient(g: Geometry, slack: int) -> tuple[Planes, list[Phase]]:
    """The output's gradient as the gradient of the input reads it: one phase for each remainder of a pixel by the stride."""
    down, across = _reached(g, 0), _reached(g, 1)
    (top, bottom), (left, right) = _extent(down), _extent(across)
    rows, pitch = bottom - top, right - left
    planes = Planes(g.result, (1, 1), (top,), (left,), rows, pitch, _length(rows, pitch, slack))
    phases = []
    for y, (height, rs) in enumerate(down):
        for x, (width, ss) in enumerate(across):
            taps = tuple((r, s) for r, _ in rs for s, _ in ss)
            places = tuple((i - top) * pitch + j - left for _, i in rs for _, j in ss)
            phases.append(Phase(taps, places, height, width, (y, x)))
    return planes, phases


def of_gradient_gapless(g: Geometry, slack: int) -> tuple[Planes, list[Phase]]:
    """The same without gaps, for a stride of 1: then it is a convolution with the window turned round."""
    planes, phase = of_input(turned(g), slack, gapless=True)
    taps = tuple((g.kernel[0] - 1 - r, g.kernel[1] - 1 - s) for r, s in phase.taps)
    return planes, [replace(phase, taps=taps)]


def turned(g: Geometry) -> Geometry:
    """The gradient of the input, for a stride of 1, as a convolution of the output's gradient with the window turned round."""
    down, across = (d * (k - 1) - p for d, k, p in zip(g.dilation, g.kernel, g.padding, strict=True))
    return replace(
        g, size=g.result, result=g.size, channels=g.filters, filters=g.channels, padding=(down, across)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Axis:
    """Planes along one axis: where each begins in the image, how long all are, and for each tap its plane and place there."""

    origins: tuple[int, ...]
    length: int
    taps: tuple[Pair, ...]


def _shared(g: Geometry, axis: int) -> _Axis:
    """One plane for each remainder by the stride that the taps have."""
    kernel, stride, dilation, padding = g.kernel[axis], g.stride[axis], g.dilation[axis], g.padding[axis]
    count = min(kernel, stride // math.gcd(stride, dilation))
    origins = tuple(i * dilation % stride - padding for i in range(count))
    length = g.result[axis] + (kernel - 1) * dilation // stride
    return _Axis(origins, length, tuple((t % count, t * dilation // stride) for t in range(kernel)))


def _apart(g: Geometry, axis: int) -> _Axis:
    """One plane for each tap."""
    origins = tuple(t * g.dilation[axis] - g.padding[axis] for t in range(g.kernel[axis]))
    return _Axis(origins, g.result[axis], tuple((t, 0) for t in range(g.kernel[axis])))


_Reached = list[tuple[int, list[tuple[int, int]]]]


def _reached(g: Geometry, axis: int) -> _Reached:
    """For each remainder: its number of pixels, and the taps that reach them with the first output that each takes."""
    stride, dilation, padding = g.stride[axis], g.dilation[axis], g.padding[axis]
    found = []
    for remainder in range(min(stride, g.size[axis])):
        ends = [(r, remainder + padding - r * dilation) for r in range(g.kernel[axis])]
        pixels = -(-(g.size[axis] - remainder) // stride)
        found.append((pixels, [(r, end // stride) for r, end in ends if end % stride == 0]))
    return found


def _extent(reached: _Reached) -> Pair:
    """The first output that any tap takes, and the one after the last; at least one output wide per pixel."""
    firsts = [first for _, taps in reached for _, first in taps]
    ends = [first + pixels for pixels, taps in reached for _, first in taps]
    first = min(firsts, default=0)
    return first, max([*ends, *(first + pixels for pixels, _ in reached)])


def _length(rows: int, pitch: int, slack: int) -> int:
    return round_up(rows * pitch + slack, max(slack, 1))
