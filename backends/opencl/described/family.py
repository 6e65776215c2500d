"""The described devices of this backend, as `backends.common.described.devices` asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend, device_info
from polyhal.hal.capabilities import DeviceInfo

known = description.known


def probe() -> Sequence[DeviceInfo]:
    """Return all of them."""
    return [device_info(description.load(key)) for key in known()]


def create(key: str) -> OpenCLDescribedBackend:
    """Open one of them."""
    return OpenCLDescribedBackend(description.load(key))
