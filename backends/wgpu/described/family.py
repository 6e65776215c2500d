"""The described devices of this backend, for `backends.common.described.devices`. Importable without wgpu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.backends.wgpu.described import description
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.errors import DeviceUnavailableError, message

if TYPE_CHECKING:
    from polyhal.backends.wgpu.described.backend import WGPUDescribedBackend

known = description.known


def probe() -> Sequence[DeviceInfo]:
    """Return all described devices."""
    return [description.load(key).info for key in known()]


def create(key: str) -> WGPUDescribedBackend:
    """Open a described device. Raises DeviceUnavailableError if the template engine of shaders is not installed."""
    try:
        from polyhal.backends.wgpu.described.backend import WGPUDescribedBackend
    except ImportError as error:
        raise DeviceUnavailableError(message(None, str(error), fix="pip install polyhal[wgpu]")) from error
    return WGPUDescribedBackend(description.load(key))
