"""What a device can do, asked of the driver once. The baseline is OpenCL 1.2; anything newer is a probed capability."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.codegen.expressions import EXPRESSIONS
from polyhal.backends.common.launching.geometry import power_of_two_at_most
from polyhal.backends.opencl import pocl_affinity
from polyhal.backends.opencl.profiles.vendor_profile import Profile, choose, shipped
from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceType, Limits
from polyhal.hal.ops.pointwise.contract_names import OP_NAMES

_GROUP = 64
_AMPERE = 80
_POCL = "portable computing language"
_OCLGRIND = "oclgrind"
_STATIC_LOCAL_MEMORY = {80: 160 << 10, 86: 96 << 10, 87: 160 << 10, 89: 96 << 10, 90: 200 << 10}
"""Bytes by compute capability. Source: CUDA C++ Programming Guide, technical specifications per compute capability."""


@dataclass(frozen=True, slots=True)
class Features:
    """Facts that choose kernels. Sizes are in bytes."""

    cpu: bool
    unified_memory: bool
    fp64: bool
    fp16: bool
    """Arithmetic on `half`; storage needs no feature."""
    subgroups: bool
    float_atomics: str
    """How a float is added atomically: `ext` (cl_ext_float_atomics), `ptx` (NVIDIA's inline assembly) or `cas`."""
    int64_atomics: bool
    correct_divide: bool
    """Single-precision division and square root can be asked to round correctly."""
    command_buffers: bool
    binaries: bool
    """Loading compiled programs pays. PoCL has a cache of its own, and its binaries lack the specialised kernels."""
    vector_width: int
    """Floats per work-item in streaming kernels."""
    group_size: int
    """Work-items per group in streaming kernels."""
    max_group_size: int
    local_memory: int
    local_memory_is_real: bool
    """False where local memory is ordinary cached memory, so that staging in it only costs."""
    static_local_memory: int
    """Local memory that a kernel may declare. NVIDIA reports what needs no opting in, and opts in by itself for more."""
    compute_units: int
    compute_capability: int
    """NVIDIA's version of the device, times ten; 0 for others."""
    platform: str
    profile: str
    """The name of the vendor profile that decided what the driver does not tell."""

    @property
    def tensor_cores(self) -> bool:
        """Matrix units, warp shuffles and asynchronous copies: see lib/mma.h and lib/async_copy.h in shaders/opencl."""
        return self.compute_capability >= _AMPERE


def profile(device: Any, kind: DeviceType) -> Profile:
    """The vendor profile of a device."""
    return choose(shipped(), device.vendor, device.platform.name, kind)


def features(device: Any, kind: DeviceType, advice: Profile | None = None) -> Features:
    """Ask the driver; what it does not tell, `advice` decides, by default the profile that is shipped for the device."""
    import pyopencl as cl

    extensions = frozenset(device.extensions.split())
    platform = device.platform.name
    cpu = kind is DeviceType.CPU
    fp64 = bool(device.double_fp_config) if _version(device) >= (1, 2) or "cl_khr_fp64" in extensions else False
    single = device.single_fp_config
    if "cl_ext_float_atomics" in extensions:
        atomics = "ext"
    elif "cl_nv_compiler_options" in extensions:
        atomics = "ptx"
    else:
        atomics = "cas"
    advice = advice or profile(device, kind)
    capability = 0
    if "cl_nv_device_attribute_query" in extensions:
        capability = 10 * int(device.compute_capability_major_nv) + int(device.compute_capability_minor_nv)
    native = max(int(device.native_vector_width_float), int(device.preferred_vector_width_float))
    reported = device.local_mem_type == cl.device_local_mem_type.LOCAL
    return Features(
        cpu=cpu,
        # Oclgrind denies it, and after each kernel goes through all that is allocated: page-locked chunks above all.
        unified_memory=bool(device.host_unified_memory) or _OCLGRIND in platform.lower(),
        fp64=fp64,
        fp16="cl_khr_fp16" in extensions,
        subgroups=bool(extensions & {"cl_khr_subgroups", "cl_intel_subgroups"}),
        float_atomics=atomics,
        int64_atomics="cl_khr_int64_base_atomics" in extensions,
        correct_divide=bool(single & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        command_buffers="cl_khr_command_buffer" in extensions,
        binaries=_POCL not in platform.lower() and _OCLGRIND not in platform.lower(),
        vector_width=advice.vector_width or (max(4, min(16, native)) if cpu else 4),
        group_size=power_of_two_at_most(min(int(device.max_work_group_size), advice.group_size or _GROUP)),
        max_group_size=int(device.max_work_group_size),
        local_memory=int(device.local_mem_size),
        # A driver that says it is ordinary memory is believed whatever the vendor.
        local_memory_is_real=reported and advice.local_memory_is_real is not False,
        static_local_memory=max(int(device.local_mem_size), _STATIC_LOCAL_MEMORY.get(capability, 0)),
        compute_units=int(device.max_compute_units),
        compute_capability=capability,
        platform=platform,
        profile=advice.name,
    )


def _version(device: Any) -> tuple[int, int]:
    match = re.match(r"OpenCL (\d+)\.(\d+)", device.version)
    return (int(match.group(1)), int(match.group(2))) if match else (1, 0)


def capabilities(device: Any, found: Features) -> Capabilities:
    """The same facts in the framework's terms."""
    storage = frozenset(d for d in dtypes.ALL if found.fp64 or d is not dtypes.float64)
    names = set(EXPRESSIONS) | set(OP_NAMES)
    arity = {n: EXPRESSIONS[OP_NAMES.get(n, n)].arity for n in names}
    plain = {n for n in names if not EXPRESSIONS[OP_NAMES.get(n, n)].params}
    return Capabilities(
        storage=storage,
        compute=storage,
        unary=frozenset(n for n in plain if arity[n] == 1),
        binary=frozenset(n for n in plain if arity[n] == 2),
        reduce=frozenset({"min", "mean", "any", "all"}),
        unified_memory=found.unified_memory,
        suballocation=True,
        strided_ops=frozenset({"attention", "attention_grad"}),
        limits=Limits(
            max_allocation=int(device.max_mem_alloc_size),
            # Cache lines, the unit in which tensor cores are fed.
            row_alignment=128 if found.tensor_cores else 1,
        ),
        features={
            "opencl": device.version,
            "opencl_c": device.opencl_c_version,
            "platform": found.platform,
            "fp16": str(found.fp16),
            "fp64": str(found.fp64),
            "float_atomics": found.float_atomics,
            "int64_atomics": str(found.int64_atomics),
            "command_buffers": str(found.command_buffers),
            "correctly_rounded_divide": str(found.correct_divide),
            "vector_width": str(found.vector_width),
            "subgroups": str(found.subgroups),
            "local_memory": str(found.local_memory),
            "max_group_size": str(found.max_group_size),
            "compute_units": str(found.compute_units),
            "profile": found.profile,
            **({"workers": str(pocl_affinity.decide())} if _POCL in found.platform.lower() else {}),
        },
        settings=frozenset({"precision", "deterministic"}),
    )
