"""Features: the device facts by which kernels and launches are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.backends.opencl_c.occupancy import Architecture
from polyhal.backends.opencl_c.quirks import DriverQuirks

if TYPE_CHECKING:
    from polyhal.backends.opencl_c.matrix_units import MatrixUnit

_AMPERE, _HOPPER = 80, 90
STATIC_LOCAL_MEMORY = {80: 160 << 10, 86: 96 << 10, 87: 160 << 10, 89: 96 << 10, 90: 200 << 10}
"""Bytes by compute capability. Source: CUDA C++ Programming Guide, technical specifications per compute capability."""


@dataclass(frozen=True, slots=True)
class KernelFeatures:
    """Device facts by which kernels and launches are chosen. Sizes are in bytes."""

    cpu: bool
    """True if kernels for processors are used: groups of one work-item, with long loops over vectors."""
    unified_memory: bool
    fp64: bool
    fp16: bool
    """True if the device computes in `half`. Storing `half` needs no feature."""
    language: str
    """The newest version of OpenCL C for kernels that need more than 1.2: "3.0", "2.0" or empty."""
    subgroups: bool
    """True if kernels may exchange values by shuffles within sub-groups."""
    float_atomics: str
    """How to add a float atomically: `ext` (cl_ext_float_atomics), `ptx` (inline assembly) or `cas` (compare and swap)."""
    int64_atomics: bool
    correct_divide: bool
    """True if single-precision division and square root can be made to round correctly."""
    command_buffers: bool
    vector_width: int
    """Floats per work-item in streaming kernels."""
    group_size: int
    """Work-items per group in streaming kernels."""
    wave: int
    """Preferred multiple of a group's work-items, because so many run in lockstep; 1 if the device does not report it."""
    max_group_size: int
    local_memory: int
    local_memory_is_real: bool
    """False if local memory is ordinary cached memory: products and convolutions then read their operands in place."""
    static_local_memory: int
    """Local memory that a kernel may declare. On NVIDIA devices it exceeds `local_memory`, the limit without opt-in."""
    parameter_bytes: int
    """Maximum bytes of a kernel's arguments."""
    compute_units: int
    """Processors that run whole groups, each with its own local memory: work is divided among them.

    Some drivers count parts of them.
    """
    sub_device: bool
    """True if this is a sub-device, so that other work may run on the same cores."""
    compute_capability: int
    """NVIDIA's version of the device times ten; 0 for other vendors."""
    platform: str
    profile: str
    """Name of the vendor profile in use."""
    quirks: DriverQuirks
    """Workarounds for the driver."""
    architecture: Architecture | None = None
    """Occupancy model by which tiles are chosen; None for the tiles that were measured on NVIDIA's devices."""
    forward_progress: bool = False
    """True if a group that was started makes progress while others wait for it."""
    clusters: bool = False
    """True if launches may have clusters of groups, which share copies to their local memory."""
    matrix_units: tuple[MatrixUnit, ...] = ()
    """Matrix units of vendors other than NVIDIA that products use."""

    @property
    def tensor_cores(self) -> bool:
        """Return whether the device has the instructions of lib/mma.h (matrix units, shuffles) and lib/async_copy.h."""
        return self.compute_capability >= _AMPERE

    @property
    def quad_atomics(self) -> bool:
        """Return whether one instruction adds four floats atomically (lib/atomic_add.h)."""
        return self.compute_capability >= _HOPPER and self.float_atomics == "ptx"

    @property
    def copy_engine(self) -> bool:
        """Return whether groups can start copies of boxes of tensors (lib/bulk_copy.h), with or without clusters."""
        return self.clusters or self.compute_capability == _HOPPER

    @property
    def inline_ptx(self) -> bool:
        """Return whether kernels may contain PTX assembly."""
        return self.compute_capability > 0

    @property
    def resident_groups(self) -> bool:
        """Return whether groups of a launch may wait for each other, given at most one group per compute unit.

        NVIDIA's devices start all groups of a launch before those of the next. OpenCL itself makes no guarantee. Groups
        that wait for earlier ones only need `forward_progress`.
        """
        return self.compute_capability > 0
