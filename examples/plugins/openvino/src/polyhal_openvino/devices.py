"""Listing and opening devices.

OpenVINO brings a version of TBB with which Intel's OpenCL runtime cannot be loaded afterwards. So the processor is listed
without importing OpenVINO, and the devices of OpenCL are listed, which loads their runtimes, before OpenVINO is imported.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING

from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.system.discovery.registry import registry

if TYPE_CHECKING:
    from polyhal_openvino.backend import OpenVinoBackend

_TYPES = {"CPU": DeviceType.CPU, "GPU": DeviceType.GPU, "NPU": DeviceType.ACCELERATOR}
"""Types by the part of OpenVINO's name before the point, as in GPU.1."""
_SMALL = 64 << 20
"""Bytes of the device for tests."""


def _info(name: str, *, small: bool = False) -> DeviceInfo:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    selector = "small" if small else name
    return DeviceInfo(
        "openvino",
        f"OpenVINO on {name}",
        _TYPES[name.partition(".")[0]],
        _SMALL if small else memory,
        f"OpenVINO {version('openvino')}",
        f"openvino-{selector.lower()}",
        selector,
    )


def probe() -> list[DeviceInfo]:
    """Return the processor. Only OpenVINO can list graphics and neural processors, which are opened by name."""
    return [_info("CPU")]


def create(selector: str) -> OpenVinoBackend:
    """Open a device by OpenVINO's name, or `small`: the processor with 64 MiB and only the required dtypes, for tests.

    Raises ValueError if OpenVINO lists no such device.
    """
    opencl = registry()
    if opencl.knows("opencl"):
        opencl.probe("opencl")
    import openvino

    from polyhal_openvino.backend import OpenVinoBackend

    core = openvino.Core()
    if selector == "small":
        return OpenVinoBackend(core, "CPU", _info("CPU", small=True), dtypes.REQUIRED)
    name = "CPU" if selector in ("", "0") else selector.upper()
    available = [x for x in core.available_devices if x.partition(".")[0] in _TYPES]
    if name not in available:
        raise ValueError(f"OpenVINO has no device {selector!r} here; expected {', '.join([*available, 'small'])}")
    return OpenVinoBackend(core, name, _info(name), frozenset(dtypes.ALL))
