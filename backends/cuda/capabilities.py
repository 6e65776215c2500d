"""Features of a CUDA device, by which kernels are chosen: equal to the OpenCL driver's for the same card.

Kernels are compiled by NVIDIA's OpenCL compiler, so the language has its limits: no `half` arithmetic and no sub-groups.
"""

from __future__ import annotations

from polyhal.backends.common.cuda_driver import CudaDriver
from polyhal.backends.common.quirks import with_overrides
from polyhal.backends.opencl_c import quirks
from polyhal.backends.opencl_c.features import STATIC_LOCAL_MEMORY, KernelFeatures
from polyhal.backends.opencl_c.profiles.vendor_profile import VendorProfile, choose, shipped
from polyhal.backends.opencl_c.ptx import HOPPER
from polyhal.hal.capabilities import DeviceType

PLATFORM = "NVIDIA CUDA"
"""Name of NVIDIA's OpenCL platform, by which profiles and workarounds are chosen."""
_BLOCK, _SHARED_MEMORY, _WARP, _MULTIPROCESSORS, _INTEGRATED, _MAJOR, _MINOR = 1, 8, 10, 16, 18, 75, 76
"""CU_DEVICE_ATTRIBUTE_... numbers."""
_PARAMETER_BYTES = 4096
"""Source: CUDA C++ Programming Guide, section "Function parameters"."""


def kind(driver: CudaDriver, device: int) -> DeviceType:
    """Return the hardware kind of a device."""
    return DeviceType.INTEGRATED_GPU if driver.attribute(_INTEGRATED, device) else DeviceType.GPU


def compute_capability(driver: CudaDriver, device: int) -> int:
    """Return NVIDIA's version of a device times ten."""
    return 10 * driver.attribute(_MAJOR, device) + driver.attribute(_MINOR, device)


def profile(kind: DeviceType) -> VendorProfile:
    """Return the vendor profile of NVIDIA's devices."""
    return choose(shipped(), "NVIDIA Corporation", PLATFORM, kind)


def features(driver: CudaDriver, device: int, name: str, vendor: VendorProfile) -> KernelFeatures:
    """Return the features of a device called `name`."""
    matched = quirks.match(PLATFORM, str(driver.version), name, cpu=False)
    capability = compute_capability(driver, device)
    local = driver.attribute(_SHARED_MEMORY, device)
    return KernelFeatures(
        cpu=False,
        unified_memory=kind(driver, device) is DeviceType.INTEGRATED_GPU,
        fp64=True,
        fp16=False,
        language="3.0",
        subgroups=False,
        float_atomics="ptx",
        int64_atomics=True,
        correct_divide=True,
        command_buffers=True,
        vector_width=vendor.vector_width or 4,
        group_size=vendor.group_size or 256,
        wave=driver.attribute(_WARP, device),
        max_group_size=driver.attribute(_BLOCK, device),
        local_memory=local,
        local_memory_is_real=True,
        static_local_memory=max(local, STATIC_LOCAL_MEMORY.get(capability, 0)),
        parameter_bytes=_PARAMETER_BYTES,
        compute_units=driver.attribute(_MULTIPROCESSORS, device),
        sub_device=False,
        compute_capability=capability,
        platform=PLATFORM,
        profile=vendor.name,
        quirks=with_overrides(matched, vendor.quirks),
        forward_progress=True,
        clusters=capability == HOPPER,
    )
