"""Present units: the matrix units of a vendor's profile that a device has, and their certification."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.opencl.raw_info import raw_info
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.matrix_units import KERNELS, MatrixUnit
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.kernels import certified_units
from polyhal.hal.core.kernels.certified_units import Units
from polyhal.hal.core.kernels.library import KernelOverrides, digest

_SUB_GROUP_SIZES, _MOST_SIZES = 0x4108, 8
"""CL_DEVICE_SUB_GROUP_SIZES_INTEL of cl_intel_required_subgroup_size, and the maximum number of sizes to query."""


def present(units: Collection[MatrixUnit], device: Any, features: KernelFeatures) -> tuple[MatrixUnit, ...]:
    """Return the units of a profile that a device has, certified or not."""
    if features.cpu or not features.fp16 or not features.local_memory_is_real:
        return ()
    extensions = frozenset(device.extensions.split())
    return tuple(u for u in units if _has(device, extensions, u) and u.lanes * u.large.waves <= features.max_group_size)


def _has(device: Any, extensions: Collection[str], unit: MatrixUnit) -> bool:
    if unit.devices and not any(re.search(pattern, device.name) for pattern in unit.devices):
        return False
    if not unit.extension:
        return True
    return unit.extension in extensions and unit.lanes == min(_sub_group_sizes(device), default=0)


def _sub_group_sizes(device: Any) -> Iterator[int]:
    """Yield the sub-group sizes that the driver supports."""
    described = getattr(device, "sub_group_sizes", None)
    if described is not None:
        yield from described
        return
    for count in range(_MOST_SIZES, 0, -1):
        answer = raw_info(device, _SUB_GROUP_SIZES, 8 * count)
        if answer:
            sizes = (int.from_bytes(answer[i : i + 8], "little") for i in range(0, len(answer), 8))
            yield from (s for s in sizes if s)  # entries that the driver did not write are 0
            return


def certified(
    units: Collection[MatrixUnit], device: Any, info: DeviceInfo, features: KernelFeatures, *, forced: bool = False
) -> tuple[KernelFeatures, Units]:
    """Return the features with certified units (all if `forced`), and the certification state of all units."""
    found = present(units, device, features)
    available = {u.name: u.description for u in found}
    known = certified_units.units(info, available, KERNELS, _texts(info) if found else "", forced=forced)
    return replace(features, matrix_units=tuple(u for u in found if u.name in known.in_use)), known


def _texts(info: DeviceInfo) -> str:
    """Return the digest of the kernels and their headers, as compiled for a device."""
    sources = SourceFolder("polyhal.shaders.opencl", KernelOverrides(info).text)
    names = sorted(frozenset().union(*map(sources.closure, KERNELS)))
    return digest("\0".join(f"{name}\0{sources.read(name)}" for name in names))
