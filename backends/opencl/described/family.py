"""The described devices of this backend, in the form that `backends.common.described.devices` requires."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend, device_info
from polyhal.hal.capabilities import DeviceInfo

known = description.known
_WITH_UNITS = ",units"


def probe() -> Sequence[DeviceInfo]:
    """Return all described devices."""
    return [device_info(description.load(key)) for key in known()]


def create(selector: str) -> OpenCLDescribedBackend:
    """Open a described device; a selector that ends with `,units` puts its matrix units into use.

    Raises DeviceUnavailableError for another option.
    """
    key = selector.removesuffix(_WITH_UNITS)
    return OpenCLDescribedBackend(description.load(key), units=key != selector)
