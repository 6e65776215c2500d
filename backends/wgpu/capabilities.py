"""What one adapter can do, as far as kernels depend on it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceType, Limits

WANTED_FEATURES = (
    "shader-f16",
    "shader-int64",
    "shader-float32-atomic",
    "subgroup",
    "immediates",
    "timestamp-query",
)  # fmt: skip
"""Features that are switched on where an adapter has them."""
_WANTED_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroups-per-dimension",
    "max-immediate-size",
)  # fmt: skip
_SUBGROUP_SIZES = {0x10DE: (32, 32), 0x1002: (32, 64), 0x8086: (8, 32), 0x106B: (32, 32)}
"""By the PCI number of NVIDIA, AMD, Intel and Apple; wgpu-native reports no sizes."""
_LLVMPIPE_TURNS = 65535
"""Mesa's software rasteriser stops there without a word."""
_MOST_IMMEDIATES = 128
"""Bytes: what every Vulkan device has; more would only fit some."""


@dataclass(frozen=True, slots=True)
class Features:
    """Facts that choose among kernels."""

    cpu: bool
    float16: bool
    int64: bool
    float_atomics: bool
    subgroups: bool
    immediates: int
    """Bytes of parameters that travel with a dispatch; 0 where they go through a uniform buffer."""
    timestamps: bool
    subgroup_sizes: tuple[int, int]
    group_size: int
    """Invocations per group for kernels without a reason for another size."""
    max_group_size: int
    local_memory: int
    max_groups: int
    """Groups per axis of a dispatch."""
    max_binding: int
    """Bytes of a buffer that one dispatch can see."""
    max_buffers: int
    """Buffers that one kernel can see."""
    most_turns: int
    """Turns after which a driver ends the loops of an invocation, all of them together; 0 where there is no such limit."""


def required_features(adapter: Any) -> list[str]:
    """The features to ask a device for."""
    return [f for f in WANTED_FEATURES if f in adapter.features]


def required_limits(adapter: Any, binding: int = 0) -> dict[str, int]:
    """The limits to ask a device for: what the adapter has, with bindings of at most `binding` bytes if given."""
    limits = {name: int(adapter.limits[name]) for name in _WANTED_LIMITS}
    if binding:
        limits["max-storage-buffer-binding-size"] = min(limits["max-storage-buffer-binding-size"], binding)
    if "immediates" in adapter.features:
        limits["max-immediate-size"] = min(limits["max-immediate-size"], _MOST_IMMEDIATES)
    else:
        del limits["max-immediate-size"]
    return limits


def features(adapter: Any, kind: DeviceType, limits: dict[str, int]) -> Features:
    """What a device with `limits` of this adapter can do."""
    has = adapter.features
    group = min(256, limits["max-compute-invocations-per-workgroup"])
    # Bindings must end at a multiple of 4 and begin at a multiple of 256.
    binding = limits["max-storage-buffer-binding-size"] // 256 * 256
    return Features(
        cpu=kind is DeviceType.CPU,
        float16="shader-f16" in has,
        int64="shader-int64" in has,
        float_atomics="shader-float32-atomic" in has,
        subgroups="subgroup" in has,
        immediates=limits.get("max-immediate-size", 0),
        timestamps="timestamp-query" in has,
        subgroup_sizes=_subgroup_sizes(adapter),
        group_size=64 if kind is DeviceType.CPU else group,
        max_group_size=limits["max-compute-invocations-per-workgroup"],
        local_memory=limits["max-compute-workgroup-storage-size"],
        max_groups=limits["max-compute-workgroups-per-dimension"],
        max_binding=binding,
        max_buffers=limits["max-storage-buffers-per-shader-stage"],
        most_turns=_LLVMPIPE_TURNS if "llvmpipe" in str(adapter.info["device"]).lower() else 0,
    )


def _subgroup_sizes(adapter: Any) -> tuple[int, int]:
    """The bounds that the adapter reports, else those that its maker's devices keep, else those of the specification.

    A device may choose the size for every kernel anew, so that no trial tells the bounds.
    """
    about = adapter.info
    if about.get("subgroup_min_size"):
        return int(about["subgroup_min_size"]), int(about["subgroup_max_size"])
    vector = re.search(r"llvmpipe.* (\d+) bits", str(about["device"]))
    if vector:
        return int(vector[1]) // 32, int(vector[1]) // 32
    return _SUBGROUP_SIZES.get(int(about["vendor_id"]), (4, 128))


def capabilities(adapter: Any, found: Features, limits: dict[str, int]) -> Capabilities:
    """The capabilities that the framework sees.

    WGSL has no functions such as exp for float64, and most devices have no float64 at all, so it is left out.
    """
    held = frozenset(dtypes.ALL) - {dtypes.float64}
    if not found.int64:
        held -= {dtypes.int64, dtypes.uint64}
    return Capabilities(
        storage=held,
        compute=held,
        unified_memory=found.cpu,
        limits=Limits(max_allocation=limits["max-buffer-size"] // 256 * 256),
        features={name: "yes" if name in adapter.features else "no" for name in WANTED_FEATURES}
        | {
            "subgroup_sizes": "-".join(map(str, found.subgroup_sizes)),
            "local_memory": str(found.local_memory),
            "max_group_size": str(found.max_group_size),
            "max_groups_per_axis": str(found.max_groups),
            "max_binding": str(found.max_binding),
        },
    )
