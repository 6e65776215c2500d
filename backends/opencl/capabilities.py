"""Capabilities of an OpenCL device, queried from the driver once.

The baseline is OpenCL 1.2; anything newer is probed as a feature. Values that the driver does not report come from a
vendor profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.codegen.offered import offered
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.quirks import active, with_overrides
from polyhal.backends.opencl import language, occupancy, pocl_affinity, quirks, sub_devices
from polyhal.backends.opencl.occupancy import Architecture
from polyhal.backends.opencl.profiles.vendor_profile import VendorProfile, choose, shipped
from polyhal.backends.opencl.quirks import OpenCLQuirks
from polyhal.backends.opencl.raw_info import raw_info
from polyhal.backends.opencl.unusable import opencl_version
from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceType, Limits
from polyhal.hal.member_names import OPTIONAL_BINARY, OPTIONAL_REDUCE, OPTIONAL_UNARY

if TYPE_CHECKING:
    from polyhal.backends.opencl.matrix_units import MatrixUnit

_GROUP = 64
_AMPERE, _HOPPER = 80, 90
_SUBGROUPS = {"cl_khr_subgroups", "cl_intel_subgroups"}
_SINGLE_FP_ATOMIC_CAPABILITIES, _GLOBAL_FP_ATOMIC_ADD = 0x4231, 1 << 1
"""CL_DEVICE_SINGLE_FP_ATOMIC_CAPABILITIES_EXT and CL_DEVICE_GLOBAL_FP_ATOMIC_ADD_EXT of cl_ext_float_atomics."""
_SUB_SLICES = 0x4252, 0x4253
"""CL_DEVICE_NUM_SLICES_INTEL and CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL of cl_intel_device_attribute_query."""
_CACHE_LINE = 128
"""Bytes. Tensor cores are fed in whole cache lines."""
_STATIC_LOCAL_MEMORY = {80: 160 << 10, 86: 96 << 10, 87: 160 << 10, 89: 96 << 10, 90: 200 << 10}
"""Bytes by compute capability. Source: CUDA C++ Programming Guide, technical specifications per compute capability."""


@dataclass(frozen=True, slots=True)
class OpenCLFeatures:
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
    quirks: OpenCLQuirks
    """Workarounds for the driver."""
    architecture: Architecture | None = None
    """Occupancy model by which tiles are chosen; None for the tiles that were measured on NVIDIA's devices."""
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
    def inline_ptx(self) -> bool:
        """Return whether kernels may contain PTX assembly."""
        return self.compute_capability > 0

    @property
    def resident_groups(self) -> bool:
        """Return whether groups of a launch may wait for each other, given at most one group per compute unit.

        NVIDIA's devices start all groups of a launch before those of the next. OpenCL itself makes no guarantee.
        """
        return self.compute_capability > 0


def profile(device: Any, kind: DeviceType) -> VendorProfile:
    """Return the vendor profile of a device."""
    return choose(shipped(), device.vendor, device.platform.name, kind)


def features(device: Any, kind: DeviceType, vendor: VendorProfile | None = None) -> OpenCLFeatures:
    """Probe a device.

    `vendor` supplies values that the driver does not report; by default the shipped profile of the device.
    """
    import pyopencl as cl

    extensions = frozenset(device.extensions.split())
    cpu = kind is DeviceType.CPU
    fp64 = bool(device.double_fp_config) if opencl_version(device) >= (1, 2) or "cl_khr_fp64" in extensions else False
    single = device.single_fp_config
    vendor = vendor or profile(device, kind)
    matched = quirks.match(device.platform.name, device.driver_version, device.name, cpu=cpu)
    active_quirks = with_overrides(matched, vendor.quirks)
    as_gpu = active_quirks.many_work_items
    cpu = cpu and not as_gpu
    capability = 0
    if "cl_nv_device_attribute_query" in extensions:
        capability = 10 * int(device.compute_capability_major_nv) + int(device.compute_capability_minor_nv)
    native_width = max(int(device.native_vector_width_float), int(device.preferred_vector_width_float))
    newer = language.newest(device)
    group_size = power_of_two_at_most(min(int(device.max_work_group_size), vendor.group_size or _GROUP))
    dedicated = device.local_mem_type == cl.device_local_mem_type.LOCAL
    return OpenCLFeatures(
        cpu=cpu,
        unified_memory=bool(device.host_unified_memory) or active_quirks.assume_unified_memory,
        fp64=fp64,
        fp16="cl_khr_fp16" in extensions,
        language=newer,
        subgroups=bool(newer) and "cl_khr_subgroup_shuffle" in extensions and bool(extensions & _SUBGROUPS),
        float_atomics=_float_atomics(device, extensions, newer),
        int64_atomics="cl_khr_int64_base_atomics" in extensions,
        correct_divide=bool(single & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        command_buffers="cl_khr_command_buffer" in extensions,
        vector_width=vendor.vector_width or (max(4, min(16, native_width)) if cpu else 4),
        group_size=group_size,
        wave=1 if cpu else power_of_two_at_most(min(_wave(device), group_size)),
        max_group_size=int(device.max_work_group_size),
        local_memory=int(device.local_mem_size),
        # A profile cannot make local memory real where the driver reports that it is not. Loops over staged tiles
        # have few iterations.
        local_memory_is_real=as_gpu or (dedicated and vendor.local_memory_is_real is not False),
        static_local_memory=max(int(device.local_mem_size), _STATIC_LOCAL_MEMORY.get(capability, 0)),
        compute_units=_processors(device, extensions, vendor),
        sub_device=opencl_version(device) >= (1, 2) and device.parent_device is not None,
        compute_capability=capability,
        platform=device.platform.name,
        profile=vendor.name,
        quirks=active_quirks,
        architecture=occupancy.match(vendor.architectures, device.name),
    )


def _processors(device: Any, extensions: frozenset[str], vendor: VendorProfile) -> int:
    """Return how many processors a device has. On some GPUs these are sub-slices, if the driver reports them."""
    if vendor.units_per_processor > 1 and "cl_intel_device_attribute_query" in extensions:
        slices, each = (int.from_bytes(raw_info(device, p, 4) or b"", "little") for p in _SUB_SLICES)
        if slices * each:
            return slices * each
    return ceil_div(int(device.max_compute_units), max(1, vendor.units_per_processor))


def _wave(device: Any) -> int:
    """Return how many work-items run in lockstep, from OpenCL 3.0 or a vendor's extension; 1 if neither exists."""
    import pyopencl as cl

    for name in ("preferred_work_group_size_multiple", "wavefront_width_amd"):
        try:
            return max(1, int(getattr(device, name)))
        except (AttributeError, cl.Error):
            continue
    return 1


def _float_atomics(device: Any, extensions: frozenset[str], newer: str) -> str:
    if "cl_nv_compiler_options" in extensions:
        return "ptx"
    if not newer or "cl_ext_float_atomics" not in extensions:
        return "cas"
    able = int.from_bytes(raw_info(device, _SINGLE_FP_ATOMIC_CAPABILITIES, 8) or b"", "little")
    return "ext" if able & _GLOBAL_FP_ATOMIC_ADD else "cas"


def capabilities(device: Any, facts: OpenCLFeatures) -> Capabilities:
    """Return a device's capabilities in the form that the framework needs."""
    storage = frozenset(d for d in dtypes.ALL if facts.fp64 or d is not dtypes.float64)
    return Capabilities(
        storage=storage,
        compute=storage,
        unary=offered(OPTIONAL_UNARY),
        binary=offered(OPTIONAL_BINARY),
        reduce=OPTIONAL_REDUCE,
        unified_memory=facts.unified_memory,
        suballocation=True,
        strided_ops=frozenset({"attention", "attention_grad"}),
        limits=Limits(
            max_allocation=int(device.max_mem_alloc_size), row_alignment=_CACHE_LINE if facts.tensor_cores else 1
        ),
        features={
            "opencl": device.version,
            "opencl_c": device.opencl_c_version,
            "opencl_c_newer": facts.language,
            "platform": facts.platform,
            "fp16": str(facts.fp16),
            "fp64": str(facts.fp64),
            "float_atomics": facts.float_atomics,
            "int64_atomics": str(facts.int64_atomics),
            "command_buffers": str(facts.command_buffers),
            "correctly_rounded_divide": str(facts.correct_divide),
            "vector_width": str(facts.vector_width),
            "subgroups": str(facts.subgroups),
            "local_memory": str(facts.local_memory),
            "max_group_size": str(facts.max_group_size),
            "compute_units": str(facts.compute_units),
            "sub_devices": str(sub_devices.most_parts(device)),
            "profile": facts.profile,
            **({"matrix_units": ", ".join(u.name for u in facts.matrix_units)} if facts.matrix_units else {}),
            **({"workers": str(pocl_affinity.decide())} if facts.quirks.pin_workers else {}),
        },
        settings=frozenset({"precision", "deterministic"}),
        quirks=active(facts.quirks),
    )
