"""Properties that drivers report, as sections of a card.

    [driver.opencl]
    standard = "rocm"               # optional: a table of `drivers.toml` with values for absent keys
    sources = ["..."]               # sources of the values
    estimated = ["extensions"]      # keys of values without a source for this exact card
    [driver.opencl.platform]        # CL_PLATFORM_* in lower case
    [driver.opencl.device]          # CL_DEVICE_* in lower case; sizes in bytes, mem_base_addr_align in bits
    [driver.opencl.compiler]        # optional: a compiler that does not need the device, and its options

    [driver.vulkan]                 # through wgpu; also `metal`, `d3d12`, and `webgpu`, the minimum of the specification
    features = ["shader-f16"]       # of `adapter.features`
    [driver.vulkan.adapter]         # of `adapter.info`
    [driver.vulkan.limits]          # of `adapter.limits`

The type of the device is not repeated here: it follows from the card's `type`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from polyhal.hal.core.hardware.standards import standard_tables
from polyhal.hal.core.settings.toml_schema import Key, TableSchema

_TEXT, _COUNT, _SIZE = Key(str), Key(int), Key(int, zero=True)
_FLOAT_FLAGS = Key(
    str,
    many=True,
    choices=(
        "denorm",
        "inf_nan",
        "round_to_nearest",
        "round_to_zero",
        "round_to_inf",
        "fma",
        "correctly_rounded_divide_sqrt",
        "soft_float",
    ),
)
_DEVICE = {
    **dict.fromkeys(("name", "vendor", "version", "opencl_c_version", "driver_version", "extensions"), _TEXT),
    **dict.fromkeys(("max_compute_units", "max_work_group_size", "local_mem_size", "global_mem_size"), _COUNT),
    **dict.fromkeys(("max_mem_alloc_size", "max_parameter_size", "mem_base_addr_align"), _COUNT),
    **dict.fromkeys(("max_work_item_sizes", "sub_group_sizes"), Key(int, many=True)),
    **dict.fromkeys(("preferred_vector_width_float", "native_vector_width_float"), _SIZE),
    **dict.fromkeys(("single_fp_config", "double_fp_config"), _FLOAT_FLAGS),
    "local_mem_type": Key(str, choices=("local", "global")),
    "host_unified_memory": Key(bool),
    "more_extensions": Key(str, optional=True),
    # Drivers before OpenCL 3.0 do not list versions, and not all drivers have the other two.
    "opencl_c_all_versions": Key(str, many=True, optional=True, choices=("1.0", "1.1", "1.2", "2.0", "3.0")),
    **dict.fromkeys(("preferred_work_group_size_multiple", "wavefront_width_amd"), Key(int, optional=True)),
}
_ADAPTER = {"device": _TEXT, "description": _TEXT, "vendor_id": _SIZE, "device_id": _SIZE}
ADAPTER_FEATURES = ("shader-f16", "shader-int64", "shader-float32-atomic", "subgroup", "immediates", "timestamp-query")
"""Optional features of wgpu for which the backend has kernels."""
ADAPTER_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroups-per-dimension",
    "max-immediate-size",
)
"""Limits of wgpu that kernels depend on."""


def _driver(
    tables: dict[str, Key | TableSchema], values: Iterable[str], standards: Mapping[str, Any] | None = None
) -> TableSchema:
    """Return the schema of a driver's section. `values` are the names that `estimated` may contain."""
    head = {"sources": Key(str, many=True), "estimated": Key(str, many=True, choices=tuple(values))}
    return TableSchema({**head, **tables}, optional=True, standards=standards or {})


_OPENCL: dict[str, Key | TableSchema] = {
    "platform": TableSchema(dict.fromkeys(("name", "vendor", "version"), _TEXT)),
    "device": TableSchema(_DEVICE),
    "compiler": TableSchema(
        {"tool": Key(str, choices=("clang", "ocloc")), "options": Key(str, many=True)}, optional=True
    ),
}
_WGPU: dict[str, Key | TableSchema] = {
    "features": Key(str, many=True, choices=ADAPTER_FEATURES),
    "adapter": TableSchema(_ADAPTER),
    "limits": TableSchema(dict.fromkeys(ADAPTER_LIMITS, _SIZE)),
}
DRIVERS = {
    "opencl": _driver(_OPENCL, _DEVICE, standard_tables("drivers")),
    **dict.fromkeys(
        ("vulkan", "metal", "d3d12", "webgpu"),
        _driver(_WGPU, [*_ADAPTER, *ADAPTER_LIMITS, "features", *ADAPTER_FEATURES]),
    ),
}
"""Schemas by API."""
