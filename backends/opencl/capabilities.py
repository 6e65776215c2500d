"""Capabilities of an OpenCL device, queried from the driver once.

The baseline is OpenCL 1.2; anything newer is probed as a feature. Values that the driver does not report come from a
vendor profile.
"""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.quirks import with_overrides
from polyhal.backends.opencl import pocl_affinity, sub_devices
from polyhal.backends.opencl.raw_info import raw_info
from polyhal.backends.opencl.unusable import opencl_version
from polyhal.backends.opencl_c import occupancy, quirks
from polyhal.backends.opencl_c.capabilities import kernel_capabilities
from polyhal.backends.opencl_c.features import STATIC_LOCAL_MEMORY, KernelFeatures
from polyhal.backends.opencl_c.profiles.vendor_profile import VendorProfile, choose, shipped
from polyhal.hal.capabilities import Capabilities, DeviceType

_GROUP = 64
_SUBGROUPS = {"cl_khr_subgroups", "cl_intel_subgroups"}
_SINGLE_FP_ATOMIC_CAPABILITIES, _GLOBAL_FP_ATOMIC_ADD = 0x4231, 1 << 1
"""CL_DEVICE_SINGLE_FP_ATOMIC_CAPABILITIES_EXT and CL_DEVICE_GLOBAL_FP_ATOMIC_ADD_EXT of cl_ext_float_atomics."""
_SUB_SLICES = 0x4252, 0x4253
"""CL_DEVICE_NUM_SLICES_INTEL and CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL of cl_intel_device_attribute_query."""
_CACHE_LINE = 128
"""Bytes. Tensor cores are fed in whole cache lines."""


def profile(device: Any, kind: DeviceType) -> VendorProfile:
    """Return the vendor profile of a device."""
    return choose(shipped(), device.vendor, device.platform.name, kind)


def features(device: Any, kind: DeviceType, vendor: VendorProfile | None = None) -> KernelFeatures:
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
    newer = newest_language(device)
    group_size = power_of_two_at_most(min(int(device.max_work_group_size), vendor.group_size or _GROUP))
    dedicated = device.local_mem_type == cl.device_local_mem_type.LOCAL
    return KernelFeatures(
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
        static_local_memory=max(int(device.local_mem_size), STATIC_LOCAL_MEMORY.get(capability, 0)),
        parameter_bytes=int(device.max_parameter_size),
        compute_units=_processors(device, extensions, vendor),
        sub_device=opencl_version(device) >= (1, 2) and device.parent_device is not None,
        compute_capability=capability,
        platform=device.platform.name,
        profile=vendor.name,
        quirks=active_quirks,
        architecture=occupancy.match(vendor.architectures, device.name),
        forward_progress=capability > 0,
    )


def newest_language(device: Any) -> str:
    """Return the newest version that kernels use, "3.0" or "2.0"; empty if the device has neither.

    A device of OpenCL 3.0 need not have 2.0, and lists its versions individually: its `opencl_c_version` may be 1.2.
    """
    words = str(device.opencl_c_version).removeprefix("OpenCL C ").split()
    versions = set(words[:1])
    if opencl_version(device) >= (3, 0):
        listed = getattr(device, "opencl_c_all_versions", ())
        versions |= {f"{v.version >> 22}.{v.version >> 12 & 0x3FF}" for v in listed}
    return next((v for v in ("3.0", "2.0") if v in versions), "")


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


def capabilities(device: Any, facts: KernelFeatures) -> Capabilities:
    """Return a device's capabilities in the form that the framework needs."""
    return kernel_capabilities(
        facts,
        int(device.max_mem_alloc_size),
        {
            "opencl": device.version,
            "opencl_c": device.opencl_c_version,
            "opencl_c_newer": facts.language,
            "command_buffers": str(facts.command_buffers),
            "sub_devices": str(sub_devices.most_parts(device)),
            **({"workers": str(pocl_affinity.decide())} if facts.quirks.pin_workers else {}),
        },
    )
