"""Physical identity and product name of a device, so that two drivers for one card count as one device."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyhal.backends.opencl.raw_info import raw_info
from polyhal.hal.capabilities import DeviceType

CL_DEVICE_UUID = 0x106A
CL_DEVICE_PCI_BUS_INFO = 0x410F
"""cl_khr_device_uuid and cl_khr_pci_bus_info."""
_AMD = "cl_amd_device_attribute_query"
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_AMD_PCI_VENDOR = "0x1002"


def product_name(device: Any) -> str:
    """Return the name of a device.

    AMD's drivers name a card by its architecture, such as gfx1030; the product name is put before it.
    """
    import pyopencl as cl

    name = str(device.name).strip()
    if _AMD not in device.extensions.split():
        return name
    try:
        board = str(device.board_name_amd).strip("\0 ")
    except cl.Error:  # older drivers support only a part of the extension
        return name
    return f"{board} ({name})" if board and board != name else name


def identity(platform: Any, device: Any, name: str, kind: DeviceType, memory: int) -> str:
    """Return an id per physical card. Two drivers for one processor are two devices, because they compute differently."""
    if kind is DeviceType.CPU:
        return f"cpu/{_slug(platform.name)}/{_slug(name)}"
    extensions = device.extensions.split()
    return _pci_address(device, extensions) or _uuid(device, extensions) or f"{_slug(name)}/{memory}"


def _pci_address(device: Any, extensions: Sequence[str]) -> str | None:
    import pyopencl as cl

    if "cl_khr_pci_bus_info" in extensions:
        raw = raw_info(device, CL_DEVICE_PCI_BUS_INFO, 16)
        if raw is not None:
            domain, bus, slot, function = (int.from_bytes(raw[i : i + 4], "little") for i in range(0, 16, 4))
            return f"pci/{domain:04x}:{bus:02x}:{slot:02x}.{function}"
    if "cl_nv_device_attribute_query" in extensions:
        bus, slot = device.get_info(cl.device_info.PCI_BUS_ID_NV), device.get_info(cl.device_info.PCI_SLOT_ID_NV)
        # The slot holds device and function, packed as PCI does.
        return f"pci/{_nvidia_domain(device):04x}:{bus:02x}:{slot >> 3:02x}.{slot & 7}"
    if _AMD in extensions:
        topology = device.topology_amd
        address = f"{topology.bus & 0xFF:02x}:{topology.device:02x}.{topology.function}"
        return f"pci/{_amd_domain(address)}:{address}"
    return None


def _nvidia_domain(device: Any) -> int:
    import pyopencl as cl

    parameter = getattr(cl.device_info, "PCI_DOMAIN_ID_NV", None)
    return int(device.get_info(parameter)) if parameter is not None else 0


def _amd_domain(address: str) -> str:
    """Return the PCI domain of AMD's only card at an address, from Linux; 0000 if it is unknown."""
    cards = [card for card in _PCI_DEVICES.glob(f"*:{address}") if (card / "vendor").is_file()]
    of_amd = [c for c in cards if (c / "vendor").read_text(encoding="ascii").strip() == _AMD_PCI_VENDOR]
    return of_amd[0].name.partition(":")[0] if len(of_amd) == 1 else "0000"


def _uuid(device: Any, extensions: Sequence[str]) -> str | None:
    if "cl_khr_device_uuid" not in extensions:
        return None
    raw = raw_info(device, CL_DEVICE_UUID, 16)
    return f"uuid/{uuid.UUID(bytes=raw)}" if raw is not None else None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
