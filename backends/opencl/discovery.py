"""The OpenCL devices of this machine, each physical card once, in an order that does not depend on driver files."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Any

from polyhal.backends.opencl import icd, install_hints, pocl_affinity
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
class Found:
    """A pyopencl device with what is known of it."""

    device: Any
    info: DeviceInfo
    platform: str


def probe() -> list[DeviceInfo]:
    """All devices. Raises RuntimeError, with what to install, when there is none."""
    return [f.info for f in devices()]


def devices() -> list[Found]:
    """All devices with their pyopencl objects.

    Raises RuntimeError when there is no platform or no device, and ImportError without pyopencl; notes say what to do.
    """
    icd.prepare()
    with pocl_affinity.applied():
        listed = _listed()
    found: dict[str, tuple[DeviceInfo, Any, str]] = {}
    for platform, device in listed:
        info = _describe(platform, device)
        found.setdefault(info.id, (info, device, platform.name))
    ordered = sorted(found.values(), key=lambda f: (_RANK[f[0].type], f[2], f[0].id))
    return [Found(device, _numbered(info, i), name) for i, (info, device, name) in enumerate(ordered)]


def _listed() -> list[tuple[Any, Any]]:
    """Platforms and devices as the drivers name them."""
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


def select(selector: str) -> Found:
    """The device with that index, or the first whose platform or own name contains `selector`.

    Some platforms have short names (`quirks.PLATFORM_ALIASES`). Raises DeviceUnavailableError with the candidates.
    """
    found = devices()
    if selector.isdigit():
        if int(selector) < len(found):
            return found[int(selector)]
    else:
        wanted = PLATFORM_ALIASES.get(selector.lower(), selector.lower())
        for f in found:
            if wanted in f.platform.lower() or wanted in f.info.name.lower() or selector == f.info.id:
                return f
    candidates = ", ".join(f"{f.info.selector} = {f.info.name} ({f.platform})" for f in found)
    raise DeviceUnavailableError(
        message(
            None,
            f"there is no OpenCL device {selector!r}",
            expected="an index or part of a platform's or device's name",
            fix=f"the devices are {candidates}",
        )
    )


def _numbered(info: DeviceInfo, index: int) -> DeviceInfo:
    return DeviceInfo(
        info.backend, info.name, info.type, info.memory, info.driver, info.id, selector=str(index), vendor=info.vendor
    )


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
    """One string per physical card; CPU devices of two drivers are different devices, as their software is."""
    if kind is DeviceType.CPU:
        return f"cpu/{_slug(platform.name)}/{_slug(name)}"
    return _pci_address(device) or _uuid(device) or f"{_slug(name)}/{memory}"


def _pci_address(device: Any) -> str | None:
    import pyopencl as cl

    extensions = device.extensions.split()
    if "cl_khr_pci_bus_info" in extensions:
        raw = _raw_info(device, CL_DEVICE_PCI_BUS_INFO, 16)
        if raw is not None:
            domain, bus, slot, function = (int.from_bytes(raw[i : i + 4], "little") for i in range(0, 16, 4))
            return f"pci/{domain:04x}:{bus:02x}:{slot:02x}.{function}"
    if "cl_nv_device_attribute_query" in extensions:
        bus, slot = device.get_info(cl.device_info.PCI_BUS_ID_NV), device.get_info(cl.device_info.PCI_SLOT_ID_NV)
        # NVIDIA packs device and function into the slot, as PCI does.
        return f"pci/{_nvidia_domain(device):04x}:{bus:02x}:{slot >> 3:02x}.{slot & 7}"
    if "cl_amd_device_attribute_query" in extensions:
        topology = device.topology_amd
        return f"pci/0000:{topology.bus & 0xFF:02x}:{topology.device:02x}.{topology.function}"
    return None


def _nvidia_domain(device: Any) -> int:
    import pyopencl as cl

    constant = getattr(cl.device_info, "PCI_DOMAIN_ID_NV", None)
    return int(device.get_info(constant)) if constant is not None else 0


def _uuid(device: Any) -> str | None:
    if "cl_khr_device_uuid" not in device.extensions.split():
        return None
    raw = _raw_info(device, CL_DEVICE_UUID, 16)
    return f"uuid/{uuid.UUID(bytes=raw)}" if raw is not None else None


def _raw_info(device: Any, parameter: int, size: int) -> bytes | None:
    """A device property that pyopencl has no decoder for, as bytes; None where the driver refuses."""
    import ctypes

    library = _loader()
    if library is None:
        return None
    buffer = ctypes.create_string_buffer(size)
    status = library.clGetDeviceInfo(ctypes.c_void_p(device.int_ptr), parameter, size, buffer, None)
    return buffer.raw if status == 0 else None


def _loader() -> Any:
    """The OpenCL loader that pyopencl's extension module has linked, or None where its symbols cannot be reached."""
    import ctypes

    from pyopencl import _cl

    try:
        library = ctypes.CDLL(_cl.__file__)
        library.clGetDeviceInfo.restype = ctypes.c_int
    except (OSError, AttributeError):
        return None
    return library


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
