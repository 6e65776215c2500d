"""Layouts of images in which every tap of a convolution is a plain shift, whatever its stride, padding and dilation.

Each channel becomes one or more planes of `pitch` pixels a row. Result (y, x) is column y * pitch + x, and its tap is found
that many pixels after the tap's place. So a vector of results takes one unaligned load per tap, and nothing is unrolled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.convolutions import Geometry, Pair
from polyhal.backends.common.geometry import round_up
from polyhal.hal.layout import Spec


@dataclass(frozen=True, slots=True)
class Planes:
    """Plane (i, j) holds the pixel at (y * stride + i * dilation % stride + origin, ...) in row y, and 0 outside the image.

    `stride`, `dilation`, `origin` and `phases`, the number of planes per channel, are pairs for rows and columns.
    """

    size: Pair
    """Of the image."""
    stride: Pair
    dilation: Pair
    origin: Pair
    phases: Pair
    rows: int
    pitch: int
    length: int
    """Pixels from one plane to the next."""

    @property
    def channel(self) -> int:
        """Pixels from one channel to the next."""
        return math.prod(self.phases) * self.length

    def are(self, images: Spec) -> bool:
        """Whether the images lie like that already."""
        return (
            (self.stride, self.origin, self.phases) == ((1, 1), (0, 0), (1, 1))
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


def of_input(g: Geometry, slack: int) -> tuple[Planes, Phase]:
    """The input as the convolution and the gradient of its weight read it, with at least `slack` zeros after each plane."""
    phases = _phases(g, 0), _phases(g, 1)
    rows, pitch = (g.result[i] + (g.kernel[i] - 1) * g.dilation[i] // g.stride[i] for i in (0, 1))
    planes = Planes(
        g.size, g.stride, g.dilation, (-g.padding[0], -g.padding[1]), phases, rows, pitch, _length(rows, pitch, slack)
    )
    taps = tuple((r, s) for r in range(g.kernel[0]) for s in range(g.kernel[1]))
    places = tuple(
        (r % phases[0] * phases[1] + s % phases[1]) * planes.length
        + r * g.dilation[0] // g.stride[0] * pitch
        + s * g.dilation[1] // g.stride[1]
        for r, s in taps
    )
    return planes, Phase(taps, places, *g.result, (0, 0))


def of_slopes(g: Geometry, pitch: int, slack: int) -> Planes:
    """The output's gradient with the pitch of the input's planes: zeros follow each row."""
    return Planes(g.result, (1, 1), (1, 1), (0, 0), (1, 1), g.result[0], pitch, _length(g.result[0], pitch, slack))


def of_gradient(g: Geometry, slack: int) -> tuple[Planes, list[Phase]]:
    """The output's gradient as the gradient of the input reads it: one phase for each remainder of a pixel by the stride."""
    down, across = _reached(g, 0), _reached(g, 1)
    (top, bottom), (left, right) = _extent(down), _extent(across)
    rows, pitch = bottom - top, right - left
    planes = Planes(g.result, (1, 1), (1, 1), (top, left), (1, 1), rows, pitch, _length(rows, pitch, slack))
    phases = []
    for y, (height, rs) in enumerate(down):
        for x, (width, ss) in enumerate(across):
            taps = tuple((r, s) for r, _ in rs for s, _ in ss)
            places = tuple((i - top) * pitch + j - left for _, i in rs for _, j in ss)
            phases.append(Phase(taps, places, height, width, (y, x)))
    return planes, phases


def _phases(g: Geometry, axis: int) -> int:
    """How many remainders by the stride the taps have."""
    return min(g.kernel[axis], g.stride[axis] // math.gcd(g.stride[axis], g.dilation[axis]))


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
