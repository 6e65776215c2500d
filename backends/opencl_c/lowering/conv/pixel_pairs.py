"""Convolutions of few channels with stride 2 along a line, such as the first one of a network, on pairs of neighbouring pixels.

Tensor cores read eight channels at once. Pairs of pixels with up to four channels fill them: windows begin at every pair, and
have half as many taps along a line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.tile_configs import half_type
from polyhal.backends.opencl_c.lowering.conv.wgmma_pack import Packed
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec

_CHANNELS = 8
"""Channels of a pair."""
_ITEMS = 256
"""ITEMS of conv/wgmma_pack.cl."""


@dataclass(frozen=True, slots=True)
class PixelPairs:
    """A convolution whose pixels are pairs of the original one's."""

    geometry: Geometry
    shift: int
    """Zeros before the first tap of a window, which begins at a pair."""

    @property
    def images(self) -> tuple[int, int, int, int]:
        """Return the shape of the packed images."""
        g = self.geometry
        return (g.images, _CHANNELS, *g.size)

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """Return the shape of the packed weight."""
        g = self.geometry
        return (g.filters, _CHANNELS, *g.kernel)

    @property
    def reduction(self) -> Args:
        """Return the arguments of conv/wgmma_split_k_reduce.cl."""
        return {"pairs": self.geometry.kernel[1], "shift": self.shift}

    def pack(
        self, runtime: Runtime, tensor: int, spec: Spec, shape: tuple[int, int, int, int], terms: int, workspace: int
    ) -> tuple[Packed, Spec]:
        """Pack argument `tensor`, images or the weight, into workspace `workspace`, where it has this shape."""
        count, _, height, pairs = shape
        pixels = count * height * pairs
        image, channel, down, across = spec.strides
        launch = runtime.launch(
            "conv/wgmma_pack",
            {"DTYPE": spec.dtype.name, "HALF_TYPE": half_type(spec.dtype), "BF16_TERMS": terms},
            {
                "x": Tensor(tensor),
                "packed": Workspace(workspace),
                "term_size": pixels * _CHANNELS,
                "channels": spec.shape[1],
                "pixels": pixels,
                "height": height,
                "width": spec.shape[3],
                "pairs": pairs,
                "shift": self.shift if shape == self.weight else 0,
                "x_image": image,
                "x_channel": channel,
                "x_down": down,
                "x_across": across,
            },
            (ceil_div(pixels, _ITEMS) * _ITEMS, 1, 1),
            (_ITEMS, 1, 1),
            kernel="conv_wgmma_pack_pairs",
        )
        size = pixels * _CHANNELS
        packed = Packed((launch,), Workspace(workspace), (2 * terms * size,), _CHANNELS, size, size)
        strides = (height * pairs * _CHANNELS, 1, pairs * _CHANNELS, _CHANNELS)
        return packed, Spec(spec.dtype, shape, strides, True)


def as_pairs(c: Convolution) -> PixelPairs | None:
    """Return the convolution of pairs that equals a convolution or is for its weight gradient; None if there is none."""
    g = c.geometry
    if g.groups != 1 or 2 * g.channels > _CHANNELS or (g.stride[1], g.dilation[1], g.size[1] % 2) != (2, 1, 0):
        return None
    shift = g.padding[1] % 2
    return PixelPairs(
        replace(
            g,
            channels=_CHANNELS,
            size=(g.size[0], g.size[1] // 2),
            kernel=(g.kernel[0], ceil_div(g.kernel[1] + shift, 2)),
            stride=(g.stride[0], 1),
            padding=(g.padding[0], (g.padding[1] + shift) // 2),
        ),
        shift,
    )
