"""The OpenCL devices of this machine: each physical card once, in an order that does not depend on driver files."""

from __future__ import annotations

import ctypes
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyhal.backends.opencl import icd, install_hints, pocl_affinity, sub_devices
from polyhal.backends.opencl.quirks import PLATFORM_ALIASES
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.discovery.software_renderers import is_software_renderer
from polyhal.hal.errors import DeviceUnavailableError, message

_NO_PLATFORM = "no OpenCL driver was found (a CPU device comes with `pip install polyhal[cpu]`)"
_RANK = {DeviceType.GPU: 0, DeviceType.INTEGRATED_GPU: 1, DeviceType.ACCELERATOR: 2, DeviceType.CPU: 3}

CL_DEVICE_UUID = 0x106A
CL_DEVICE_PCI_BUS_INFO = 0x410F
"""cl_khr_device_uuid and cl_khr_pci_bus_info."""


@dataclass(frozen=True, slots=True)
class OpenCLDevice:
    """A pyopencl device and its description."""

    cl: Any
    info: DeviceInfo
    platform: str
    context: Any = None
    """The context of all parts of a split; None for a device that has its own."""


def probe() -> list[DeviceInfo]:
    """Return the descriptions of all devices. Raises RuntimeError, with what to install, if there is none."""
    return [d.info for d in devices()]


def devices() -> list[OpenCLDevice]:
    """Return all devices.

    Raises RuntimeError if there is no platform or no device, and ImportError without pyopencl. Notes of the exceptions say
    what to do.
    """
    icd.prepare()
    with pocl_affinity.applied():
        listed = _listed()
    cards: dict[str, OpenCLDevice] = {}
    for platform, device in listed:
        described = OpenCLDevice(device, _describe(platform, device), platform.name)
        cards.setdefault(described.info.id, described)
    ordered = sorted(cards.values(), key=lambda d: (_RANK[d.info.type], d.platform, d.info.id))
    return [replace(d, info=replace(d.info, selector=str(i))) for i, d in enumerate(ordered)]


def _listed() -> list[tuple[Any, Any]]:
    """Return platforms and devices as the drivers list them."""
    try:
        import pyopencl as cl
    except ImportError as error:
        error.add_note(install_hints.package())
        raise
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise _no_driver(f" ({error})") from error
    listed = []
    for platform in platforms:
        try:
            listed += [(platform, d) for d in platform.get_devices()]
        except cl.Error as error:
            if error.code != cl.status_code.DEVICE_NOT_FOUND:
                raise
    if not listed:
        raise _no_driver()
    return listed


def _no_driver(reason: str = "") -> RuntimeError:
    error = RuntimeError(_NO_PLATFORM + reason)
    error.add_note(install_hints.driver())
    return error


def select(selector: str) -> OpenCLDevice:
    """Return the device with that index, or the first one whose platform or own name contains `selector`.

    Some platforms have short names (`quirks.PLATFORM_ALIASES`). `/COUNT:INDEX` after either names a part of the device (see
    sub_devices.py). Raises DeviceUnavailableError that lists the candidates.
    """
    candidates = devices()
    if (found := _matching(candidates, selector)) is not None:
        return found
    split = sub_devices.parse(selector)
    if split is not None and (found := _matching(candidates, split.device)) is not None:
        return sub_devices.part(found, split)
    listed = ", ".join(f"{d.info.selector} = {d.info.name} ({d.platform})" for d in candidates)
    raise DeviceUnavailableError(
        message(
            None,
            f"there is no OpenCL device {selector!r}",
            expected="an index or part of a platform's or device's name",
            fix=f"the devices are {listed}",
        )
    )


def _matching(candidates: Sequence[OpenCLDevice], selector: str) -> OpenCLDevice | None:
    if selector.isdigit():
        return candidates[int(selector)] if int(selector) < len(candidates) else None
    part = PLATFORM_ALIASES.get(selector.lower(), selector.lower())
    for d in candidates:
        if part in d.platform.lower() or part in d.info.name.lower() or selector == d.info.id:
            return d
    return None


def _describe(platform: Any, device: Any) -> DeviceInfo:
    name = device.name.strip()
    kind = _kind(device, name)
    memory = int(device.global_mem_size)
    return DeviceInfo(
        backend="opencl",
        name=name,
        type=kind,
        memory=memory,
        driver=f"{platform.name} {device.driver_version}",
        id=_identity(platform, device, name, kind, memory),
        vendor=device.vendor.strip(),
    )


def _kind(device: Any, name: str) -> DeviceType:
    import pyopencl as cl

    if device.type & cl.device_type.CPU or is_software_renderer(name):
        return DeviceType.CPU
    if device.type & cl.device_type.GPU:
        return DeviceType.INTEGRATED_GPU if device.host_unified_memory else DeviceType.GPU
    return DeviceType.ACCELERATOR


def _identity(platform: Any, device: Any, name: str, kind: DeviceType, memory: int) -> str:
    """Return an id per physical card. Two drivers for one processor are two devices, because they compute differently."""
    if kind is DeviceType.CPU:
        return f"cpu/{_slug(platform.name)}/{_slug(name)}"
    extensions = device.extensions.split()
    return _pci_address(device, extensions) or _uuid(device, extensions) or f"{_slug(name)}/{memory}"


def _pci_address(device: Any, extensions: Sequence[str]) -> str | None:
    import pyopencl as cl

    if "cl_khr_pci_bus_info" in extensions:
        raw = _raw_info(device, CL_DEVICE_PCI_BUS_INFO, 16)
        if raw is not None:
            domain, bus, slot, function = (int.from_bytes(raw[i : i + 4], "little") for i in range(0, 16, 4))
            return f"pci/{domain:04x}:{bus:02x}:{slot:02x}.{function}"
    if "cl_nv_device_attribute_query" in extensions:
        bus, slot = device.get_info(cl.device_info.PCI_BUS_ID_NV), device.get_info(cl.device_info.PCI_SLOT_ID_NV)
        # The slot holds device and function, packed as PCI does.
        return f"pci/{_nvidia_domain(device):04x}:{bus:02x}:{slot >> 3:02x}.{slot & 7}"
    if "cl_amd_device_attribute_query" in extensions:
        topology = device.topology_amd
        return f"pci/0000:{topology.bus & 0xFF:02x}:{topology.device:02x}.{topology.function}"
    return None


def _nvidia_domain(device: Any) -> int:
    import pyopencl as cl

    parameter = getattr(cl.device_info, "PCI_DOMAIN_ID_NV", None)
    return int(device.get_info(parameter)) if parameter is not None else 0


def _uuid(device: Any, extensions: Sequence[str]) -> str | None:
    if "cl_khr_device_uuid" not in extensions:
        return None
    raw = _raw_info(device, CL_DEVICE_UUID, 16)
    return f"uuid/{uuid.UUID(bytes=raw)}" if raw is not None else None


def _raw_info(device: Any, parameter: int, size: int) -> bytes | None:
    """Return device information that pyopencl cannot decode, as bytes; None if the driver refuses."""
    library = _loader()
    if library is None:
        return None
    buffer = ctypes.create_string_buffer(size)
    status = library.clGetDeviceInfo(ctypes.c_void_p(device.int_ptr), parameter, size, buffer, None)
    return buffer.raw if status == 0 else None


def _loader() -> Any:
    """Return the OpenCL loader that pyopencl's extension module is linked to; None if its symbols cannot be reached."""
    from pyopencl import _cl

    try:
        library = ctypes.CDLL(_cl.__file__)
        library.clGetDeviceInfo.restype = ctypes.c_int
    except (OSError, AttributeError):
        return None
    return library


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
