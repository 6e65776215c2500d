"""Operands of convolutions on CPUs: images as tap planes, the weight tensor, and the vector type of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry
from polyhal.backends.common.problems.conv_planes import Phase, TapPlanes
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.gemm.cpu_panels import RegisterTile
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

PACK_COST = 16
"""Cost of packing a pixel, in multiply-adds."""
CACHED_PLANES_BYTES = 1 << 19
"""Maximum bytes of planes that a multiplying work-item packs itself: they stay in the second-level cache."""
_ITEMS_PER_UNIT = 4
"""Work-items per compute unit, for load balance."""
_PACK_ITEMS_PER_UNIT = 64
"""Maximum work-items per compute unit that pack images: starting one costs as much as some rows of a small image."""
_AVX512_FLOATS = 16
"""Floats in a register of AVX-512."""
BAND = 8
"""Rows of a plane, or channels of the weights, that a work-item packs."""
_SHORT_PLANE = 2048
"""Maximum pixels of a plane whose rows one work-item packs."""


@dataclass(frozen=True, slots=True)
class Planes:
    """Images as tap planes: their memory, the strides of images and channels, and the launch and bytes of the packing."""

    memory: Tensor | Workspace
    image: int
    channel: int
    steps: tuple[Launch, ...] = ()
    nbytes: int = 0


def planes_in_place(images: Spec, tensor: int) -> Planes:
    """Return images in argument `tensor` that already have the layout of planes."""
    return Planes(Tensor(tensor), images.strides[0], images.strides[1])


def packed_planes(
    runtime: Runtime, images: Spec, tensor: int, workspace: int, planes: TapPlanes, real: str, *, beyond: int = 0
) -> Planes:
    """Return the images in argument `tensor`, packed to a workspace; a kernel may read `beyond` pixels past its end."""
    count, channels = images.shape[:2]
    band = planes.rows if planes.length <= _SHORT_PLANE else BAND
    bands = len(planes.tops) * len(planes.lefts) * ceil_div(planes.rows, band)
    blocks = min(channels, ceil_div(_PACK_ITEMS_PER_UNIT * runtime.features.compute_units, bands * count))
    channels_each = ceil_div(channels, blocks)
    x_image, x_channel, x_row, x_column = images.strides
    pack = runtime.launch(
        "conv/cpu_planes_pack",
        {"DTYPE": images.dtype.name, "REAL": real, "WIDTH": lanes(runtime, real)},
        {
            "x": Tensor(tensor),
            "planes": Workspace(workspace),
            "layout": layout_table(planes),
            "images": count,
            "channels": channels,
            "channels_each": channels_each,
            "band": band,
            "x_image": x_image,
            "x_channel": x_channel,
            "x_row": x_row,
            "x_column": x_column,
        },
        (bands, ceil_div(channels, channels_each), count),
        (1, 1, 1),
        kernel="pack_planes",
    )
    size = count * channels * planes.channel + beyond
    return Planes(Workspace(workspace), channels * planes.channel, planes.channel, (pack,), size * itemsize(real))


def layout_table(planes: TapPlanes) -> Table:
    """Return the table `layout` of conv/tap_planes.h."""
    counts = len(planes.tops), len(planes.lefts)
    return Table(
        (*planes.size, planes.rows, planes.pitch, planes.length, *counts, *planes.stride, *planes.tops, *planes.lefts)
    )


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight tensor in argument `tensor`, with axes (rows of results, channels of the sum, taps)."""

    spec: Spec
    tensor: int
    rows: int
    channels: int
    group_step: int
    row_step: int
    channel_step: int


@dataclass(frozen=True, slots=True)
class Product:
    """Product of weights and pixels: images in argument 0, the result in argument `target`, then workspaces."""

    geometry: Geometry
    images: Spec
    weights: Weights
    out: Spec
    target: int
    bias: int | None

    @property
    def real(self) -> str:
        """The C type of sums."""
        return real_type(self.out.dtype)

    @property
    def count(self) -> int:
        """Number of images times groups."""
        return self.geometry.images * self.geometry.groups


def forward_product(c: Convolution) -> Product:
    """Return the product of a convolution, with its bias."""
    g, steps = c.geometry, c.second.strides
    weights = Weights(c.second, 1, g.filters, g.channels, g.filters * steps[0], steps[0], steps[1])
    return Product(g, c.first, weights, c.out, c.target, c.bias)


def input_grad_product(c: Convolution) -> Product:
    """Return the product of an input gradient: channels are rows of the result, and filters are summed over."""
    g, steps = c.geometry, c.second.strides
    weights = Weights(c.second, 1, g.channels, g.filters, g.filters * steps[0], steps[1], steps[0])
    return Product(g, c.first, weights, c.out, c.target, None)


def packed_weights(runtime: Runtime, p: Product, phases: Sequence[Phase], tile: RegisterTile) -> tuple[Launch, int]:
    """Build the launch that packs the weights by panels to the second workspace, and its bytes."""
    w, groups, panels = p.weights, p.geometry.groups, ceil_div(p.weights.rows, tile.rows)
    taps = sum(len(phase.taps) for phase in phases)
    _, _, down, across = w.spec.strides
    launch = runtime.launch(
        "conv/cpu_planes_pack",
        {"DTYPE": w.spec.dtype.name, "REAL": p.real, "WIDTH": tile.width, "ROWS": tile.rows, "BAND": BAND},
        {
            "w": Tensor(w.tensor),
            "packed": Workspace(p.target + 2),
            "tap_sources": _tap_sources(phases, down, across),
            "taps": taps,
            "groups": groups,
            "channels": w.channels,
            "filters": w.rows,
            "w_group": w.group_step,
            "w_filter": w.row_step,
            "w_channel": w.channel_step,
        },
        (ceil_div(w.channels, BAND), panels, groups),
        (1, 1, 1),
        kernel="pack_weights",
    )
    # With some strides no tap contributes to an image.
    return launch, groups * panels * tile.rows * w.channels * max(taps, 1) * itemsize(p.real)


def _tap_sources(phases: Sequence[Phase], down: int, across: int) -> Table:
    """Return the table `tap_sources` of conv/cpu_planes_pack.cl."""
    numbers: list[int] = []
    for phase in phases:
        first = len(numbers) // 3
        for r, s in phase.taps:
            numbers += [r * down + s * across, first, len(phase.taps)]
    return Table(tuple(numbers))


def work_items(runtime: Runtime) -> int:
    """Return the least number of work-items that balances the cores."""
    return _ITEMS_PER_UNIT * runtime.features.compute_units


def registers(features: KernelFeatures) -> int:
    """Return the number of vector registers: 32 with AVX-512, else an assumed 16."""
    return 32 if features.vector_width >= _AVX512_FLOATS else 16


def lanes(runtime: Runtime, real: str) -> int:
    """Return the reals per vector register."""
    return runtime.features.vector_width // (2 if real == "double" else 1)


def itemsize(real: str) -> int:
    return 8 if real == "double" else 4


def is_real(spec: Spec, real: str) -> bool:
    """Return whether a tensor's dtype is the type of the sums."""
    return spec.dtype.name == {"float": "float32", "double": "float64"}[real]
