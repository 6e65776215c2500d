"""What tests of the simulated device share."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.backends.sim.backend import SimBackend
from polyhal.hal.device import Device

OpenSim = Callable[..., Device]
"""Opens a device by selector."""


def sim_of(device: Device) -> SimBackend:
    """The backend of a simulated device."""
    assert isinstance(device.backend, SimBackend)
    return device.backend
