"""The windows of convolutions by Winograd on GPUs, and the arguments that all of their kernels take."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.conv import Convolution, Pair
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes


@dataclass(frozen=True, slots=True)
class Windows:
    """Channels, filters, sizes of images and results, borders, and strides of the weight of a convolution."""

    images: int
    channels: int
    filters: int
    size: Pair
    result: Pair
    padding: Pair
    weight: tuple[int, int, int, int, int]
    """The first tap, and the distances of filters, channels, rows and columns."""

    @property
    def tiles(self) -> int:
        """Number of tiles of 2 by 2 results."""
        return self.images * ceil_div(self.result[0], 2) * ceil_div(self.result[1], 2)

    def args(self, c: Convolution) -> Args:
        """Return the arguments of kernels that read the images or the weight of a convolution."""
        return {
            **dict(zip(("x_image", "x_channel", "x_down", "x_across"), c.first.strides, strict=True)),
            **dict(zip(("w_start", "w_filter", "w_channel", "w_row", "w_column"), self.weight, strict=True)),
            "channels": self.channels,
            "filters": self.filters,
            "tiles": self.tiles,
            "tiles_down": ceil_div(self.result[0], 2),
            "tiles_across": ceil_div(self.result[1], 2),
            "height": self.size[0],
            "width": self.size[1],
            "down": self.result[0],
            "across": self.result[1],
            "padding_y": self.padding[0],
            "padding_x": self.padding[1],
        }


def of_forward(c: Convolution) -> Windows:
    """Return the windows of a convolution."""
    g, (filter_, channel, row, column) = c.geometry, c.second.strides
    return Windows(g.images, g.channels, g.filters, g.size, g.result, g.padding, (0, filter_, channel, row, column))


def of_input_grad(c: Convolution) -> Windows:
    """Return the flipped windows of the convolution that computes an input gradient."""
    g, (filter_, channel, row, column) = c.geometry, c.second.strides
    padding = (2 - g.padding[0], 2 - g.padding[1])
    flipped = (2 * row + 2 * column, channel, filter_, -row, -column)
    return Windows(g.images, g.filters, g.channels, g.result, g.size, padding, flipped)


def suits(runtime: Runtime, c: Convolution) -> bool:
    """Return whether a convolution or gradient has windows of 3 by 3, stride 1, and no kernel for tensor cores."""
    g = c.geometry
    if (g.kernel, g.stride, g.dilation, g.groups) != ((3, 3), (1, 1), (1, 1), 1):
        return False
    if c.first.dtype is not dtypes.float32 or c.out.dtype is not dtypes.float32 or not c.out.is_contiguous:
        return False
    return c.precision == "highest" or not runtime.features.tensor_cores
