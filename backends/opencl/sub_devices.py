"""Sub-devices: a device split into several with some of its compute units each, which are a processor's cores.

`Device("opencl:0/2:1")` is the second half of the first device. A process splits a device only once: a second split
would create different sub-devices on the same cores. All parts share a context, so that the driver copies between them.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from polyhal.backends.opencl_c import quirks
from polyhal.hal.collectives.collective import divided
from polyhal.hal.errors import DeviceUnavailableError, message

if TYPE_CHECKING:
    from polyhal.backends.opencl.discovery import OpenCLDevice

_SELECTOR = re.compile(r"(?P<device>.+)/(?P<count>\d+)(?::(?P<index>\d+))?")
_BY_NAMES, _BY_NAMES_LIST_END = 0x4052, -1
"""cl_intel_device_partition_by_names: sub-devices by the numbers of their cores."""

_splits: dict[tuple[int, int], tuple[list[Any], Any]] = {}
"""Sub-devices and their context, by the driver's handle of the split device and the number of parts."""
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class SubDeviceSelector:
    """A parsed selector `DEVICE/COUNT:INDEX`."""

    device: str
    count: int
    index: int | None
    """Index of the part; None without one."""

    def __str__(self) -> str:
        return f"{self.device}/{self.count}" + ("" if self.index is None else f":{self.index}")


def parse(selector: str) -> SubDeviceSelector | None:
    """Read `DEVICE/COUNT` or `DEVICE/COUNT:INDEX`; None for a selector without a split."""
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        return None
    index = int(match["index"]) if match["index"] is not None else None
    return SubDeviceSelector(match["device"], int(match["count"]), index)


def expand(selector: str) -> list[str]:
    """Return the selectors of all devices that `selector` denotes: all parts of a split without an index, or itself."""
    split = parse(selector)
    if split is None or split.index is not None or not split.count:
        return [selector]
    return [str(replace(split, index=i)) for i in range(split.count)]


def part(parent: OpenCLDevice, split: SubDeviceSelector) -> OpenCLDevice:
    """Return one part of a device, the first if the selector has no index. Raises DeviceUnavailableError."""
    index = split.index or 0
    if index >= split.count:
        expected = f"0 to {split.count - 1}" if split.count else "1 or more parts"
        raise _unavailable(parent, f"part {index} of {split.count} does not exist", expected)
    units = int(parent.cl.max_compute_units)
    with _lock:
        key = parent.cl.int_ptr, split.count
        if key not in _splits:
            _splits[key] = _split(parent, split.count, units)
        devices, context = _splits[key]
    device = devices[index]
    cores = int(device.max_compute_units)
    info = replace(
        parent.info,
        name=f"{parent.info.name}, {cores} of {units} cores",
        memory=parent.info.memory * cores // units,
        id=f"{parent.info.id}/{split.count}:{index}",
        selector=f"{parent.info.selector}/{split.count}:{index}",
    )
    return replace(parent, cl=device, info=info, context=context)


def most_parts(device: Any) -> int:
    """Return the maximum number of parts of a split; 0 if the device cannot be split."""
    import pyopencl as cl

    try:
        by_cores = cl.device_partition_property.BY_COUNTS in device.partition_properties
        return int(device.partition_max_sub_devices) if by_cores else 0
    except cl.Error:  # before OpenCL 1.2
        return 0


def _split(parent: OpenCLDevice, count: int, units: int) -> tuple[list[Any], Any]:
    import pyopencl as cl

    most = min(most_parts(parent.cl), units)
    if not most:
        raise _unavailable(parent, "its driver cannot split it", "a processor with OpenCL 1.2")
    if count > most:
        raise _unavailable(parent, f"it cannot be split into {count} parts", f"at most {most}, one for each core")
    try:
        parts = _partition(parent, divided(units, count))
        return parts, cl.Context(parts)
    except cl.Error as error:
        raise _unavailable(parent, f"splitting it into {count} parts failed ({error})", f"1 to {most} parts") from error


def _partition(parent: OpenCLDevice, counts: Sequence[int]) -> list[Any]:
    """Split a device into parts with these numbers of cores. Raises pyopencl.Error."""
    import pyopencl as cl

    device, kinds = parent.cl, cl.device_partition_property
    quirk = quirks.match(parent.platform, device.driver_version, device.name, cpu=True).split_by_names
    if not quirk or _BY_NAMES not in device.partition_properties:
        return list(device.create_sub_devices([kinds.BY_COUNTS, *counts, kinds.BY_COUNTS_LIST_END]))
    ends = itertools.accumulate(counts)
    parts = [range(end - length, end) for end, length in zip(ends, counts, strict=True)]
    return [device.create_sub_devices([_BY_NAMES, *cores, _BY_NAMES_LIST_END])[0] for cores in parts]


def _unavailable(parent: OpenCLDevice, problem: str, expected: str) -> DeviceUnavailableError:
    return DeviceUnavailableError(message(None, problem, expected=expected, device=parent.info.name))
