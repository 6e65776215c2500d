"""Capabilities of a wgpu adapter that kernels depend on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.quirks import active, with_overrides
from polyhal.backends.wgpu import quirks
from polyhal.backends.wgpu.quirks import WGPUQuirks
from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceType, Limits
from polyhal.hal.core.hardware.driver_schemas import ADAPTER_FEATURES, ADAPTER_LIMITS

_NVIDIA, _AMD, _INTEL, _APPLE = 0x10DE, 0x1002, 0x8086, 0x106B
_SUBGROUP_SIZES = {_NVIDIA: (32, 32), _AMD: (32, 64), _INTEL: (8, 32), _APPLE: (32, 32)}
"""Smallest and largest subgroup size by PCI vendor id, because wgpu-native does not report them."""
_VENDORS = {"nvidia": _NVIDIA, "amd": _AMD, "intel": _INTEL, "apple": _APPLE}
"""PCI vendor id by the first word of a device name, because adapters on Metal have no vendor id."""
_ANY_SUBGROUP_SIZE = (4, 128)
"""Bounds of the WebGPU specification."""
_MAX_IMMEDIATE_SIZE = 128
"""Bytes of push constants that every Vulkan device supports."""


@dataclass(frozen=True, slots=True)
class WGPUFeatures:
    """Device properties that select kernels and launches. Sizes are in bytes."""

    cpu: bool
    float16: bool
    int64: bool
    float_atomics: bool
    subgroups: bool
    immediates: int
    """Maximum size of parameters in the command stream; larger ones are in a uniform buffer."""
    timestamps: bool
    subgroup_sizes: tuple[int, int]
    group_size: int
    """Default invocations per workgroup."""
    max_group_size: int
    local_memory: int
    max_groups: int
    """Maximum workgroups per axis of a dispatch."""
    max_binding: int
    """Maximum size of a storage buffer binding."""
    max_buffers: int
    """Maximum number of storage buffers per kernel."""
    quirks: WGPUQuirks
    """Workarounds for the driver."""


def required_features(adapter: Any) -> list[str]:
    """Return the features to request of the device."""
    return [f for f in ADAPTER_FEATURES if f in adapter.features]


def required_limits(adapter: Any, binding: int = 0) -> dict[str, int]:
    """Return the limits to request of the device: the adapter's, with bindings of at most `binding` bytes if not 0."""
    limits = {name: int(adapter.limits[name]) for name in ADAPTER_LIMITS}
    if binding:
        limits["max-storage-buffer-binding-size"] = min(limits["max-storage-buffer-binding-size"], binding)
    if "immediates" in adapter.features:
        limits["max-immediate-size"] = min(limits["max-immediate-size"], _MAX_IMMEDIATE_SIZE)
    else:
        del limits["max-immediate-size"]
    return limits


def features(
    adapter: Any, kind: DeviceType, limits: dict[str, int], overrides: Mapping[str, bool | int]
) -> WGPUFeatures:
    """Return the properties of a device that was requested with `limits`. `overrides` switches quirks on or off.

    Raises TypeError for an undeclared quirk.
    """
    available, about = adapter.features, adapter.info
    cpu = kind is DeviceType.CPU
    matched = quirks.match(str(about["backend_type"]), str(about["description"]), str(about["device"]), cpu=cpu)
    workarounds = with_overrides(matched, overrides)
    return WGPUFeatures(
        cpu=cpu,
        float16="shader-f16" in available,
        int64="shader-int64" in available,
        float_atomics="shader-float32-atomic" in available,
        subgroups="subgroup" in available,
        immediates=limits.get("max-immediate-size", 0),
        timestamps="timestamp-query" in available,
        subgroup_sizes=_subgroup_sizes(about, workarounds),
        group_size=64 if cpu else min(256, limits["max-compute-invocations-per-workgroup"]),
        max_group_size=limits["max-compute-invocations-per-workgroup"],
        local_memory=limits["max-compute-workgroup-storage-size"],
        max_groups=limits["max-compute-workgroups-per-dimension"],
        # Bindings must start at a multiple of 256 and end at a multiple of 4.
        max_binding=limits["max-storage-buffer-binding-size"] // 256 * 256,
        max_buffers=limits["max-storage-buffers-per-shader-stage"],
        quirks=workarounds,
    )


def _subgroup_sizes(about: Any, workarounds: WGPUQuirks) -> tuple[int, int]:
    """Return the smallest and largest size: reported by the adapter, else documented by its vendor, else specified by WebGPU.

    They cannot be measured, because the driver may choose a different size for each kernel.
    """
    if about.get("subgroup_min_size"):
        return int(about["subgroup_min_size"]), int(about["subgroup_max_size"])
    if workarounds.fixed_subgroup_size:
        return workarounds.fixed_subgroup_size, workarounds.fixed_subgroup_size
    return _SUBGROUP_SIZES.get(_vendor(about), _ANY_SUBGROUP_SIZE)


def _vendor(about: Any) -> int:
    """Return the PCI id of an adapter's vendor, 0 if unknown."""
    words = re.findall(r"\w+", str(about["device"]).lower())
    return int(about["vendor_id"]) or _VENDORS.get(words[0] if words else "", 0)


def capabilities(adapter: Any, facts: WGPUFeatures, limits: dict[str, int]) -> Capabilities:
    """Return the device's capabilities for the framework.

    float64 is left out: most devices lack it, and WGSL has no functions such as exp for it.
    """
    storage = frozenset(dtypes.ALL) - {dtypes.float64}
    if not facts.int64:
        storage -= {dtypes.int64, dtypes.uint64}
    return Capabilities(
        storage=storage,
        compute=storage,
        unified_memory=facts.cpu,
        limits=Limits(max_allocation=limits["max-buffer-size"] // 256 * 256),
        features={name: "yes" if name in adapter.features else "no" for name in ADAPTER_FEATURES}
        | {
            "subgroup_sizes": "-".join(map(str, facts.subgroup_sizes)),
            "local_memory": str(facts.local_memory),
            "max_group_size": str(facts.max_group_size),
            "max_groups_per_axis": str(facts.max_groups),
            "max_binding": str(facts.max_binding),
        },
        quirks=active(facts.quirks),
    )
