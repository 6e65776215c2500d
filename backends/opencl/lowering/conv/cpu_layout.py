"""Operands of convolutions on CPUs: images as planes, the tensor of weights, and the vectors that sums are made in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, Table, Tensor, Workspace
from polyhal.backends.common.problems.conv_planes import TapPlanes
from polyhal.backends.opencl.capabilities import OpenCLFeatures
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.gemm.arguments import ints, longs, uints
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec

Step = Callable[..., None]
PLACING = 16
"""Multiplications that take as long as to lay out a pixel."""
IMAGES_BYTES = 1 << 19
"""Planes, at most, that the work-item that multiplies lays out itself: they stay in the second-level cache."""
_ITEMS_PER_UNIT = 4
_PACKING_ITEMS_PER_UNIT = 64
"""Work-items that lay images out, for each compute unit: starting one costs as much as some rows of a small image."""
_WIDE = 16
"""Floats in a register of AVX-512."""
BAND = 8
"""Rows of a plane, or channels of the weights, that a work-item lays out."""
_SHORT_PLANE = 2048
"""Pixels of a plane up to which one work-item lays out all rows."""


@dataclass(frozen=True, slots=True)
class Images:
    """Where a kernel finds planes: two parameters, the strides of images and channels, how they are made, and their size."""

    parameters: tuple[Parameter, ...]
    image: int
    channel: int
    steps: tuple[Step, ...] = ()
    nbytes: int = 0

    @property
    def strides(self) -> list[Parameter]:
        return longs(self.image, self.channel)


def images_as(
    runtime: Runtime,
    spec: Spec,
    place: int,
    workspace: int,
    planes: TapPlanes,
    real: str,
    *,
    packed: bool,
    beyond: int = 0,
) -> Images:
    """The images in argument `place`, or their planes in a workspace; a kernel may read that many pixels `beyond` them."""
    if not packed:
        return Images((Tensor(place),), spec.strides[0], spec.strides[1])
    images, channels = spec.shape[:2]
    band = planes.rows if planes.length <= _SHORT_PLANE else BAND
    bands = len(planes.tops) * len(planes.lefts) * ceil_div(planes.rows, band)
    parts = min(channels, ceil_div(_PACKING_ITEMS_PER_UNIT * runtime.features.compute_units, bands * images))
    together = ceil_div(channels, parts)
    pack = runtime.launch(
        "pack_planes", "conv/cpu_planes_pack",
        {"DTYPE": spec.dtype.name, "REAL": real, "WIDTH": lanes(runtime, real)},
        [
            Tensor(place), Workspace(workspace), table(planes), *uints(images, channels, together), *ints(band),
            *longs(*spec.strides),
        ],
        (bands, ceil_div(channels, together), images), (1, 1, 1), kernel="pack_planes",
    )  # fmt: skip
    size = images * channels * planes.channel + beyond
    parameters = (Workspace(workspace), Constant(0, "ulong"))
    return Images(parameters, channels * planes.channel, planes.channel, (pack,), size * itemsize(real))


def table(planes: TapPlanes) -> Table:
    """`layout` of conv/planes.h."""
    counts = len(planes.tops), len(planes.lefts)
    return Table(
        (*planes.size, planes.rows, planes.pitch, planes.length, *counts, *planes.stride, *planes.tops, *planes.lefts)
    )


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensor of weights in argument `place`, as rows of results, channels that are summed over, and taps."""

    spec: Spec
    place: int
    rows: int
    channels: int
    group_step: int
    row_step: int
    channel_step: int


def work_items(runtime: Runtime) -> int:
    """How many there should be at least, so that no core waits long for the others."""
    return _ITEMS_PER_UNIT * runtime.features.compute_units


def registers(features: OpenCLFeatures) -> int:
    """Vector registers: AVX-512 has 32, others are taken to have 16."""
    return 32 if features.vector_width >= _WIDE else 16


def lanes(runtime: Runtime, real: str) -> int:
    """Reals per vector register."""
    return runtime.features.vector_width // (2 if real == "double" else 1)


def itemsize(real: str) -> int:
    return 8 if real == "double" else 4


def is_real(spec: Spec, real: str) -> bool:
    """Whether a tensor holds numbers of the type that sums have."""
    return spec.dtype.name == {"float": "float32", "double": "float64"}[real]
