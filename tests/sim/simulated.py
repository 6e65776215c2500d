"""Helpers for tests of the simulated device."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.backends.sim.backend import SimBackend
from polyhal.hal.device import Device

OpenSim = Callable[..., Device]
"""Function that opens a device by selector."""


def sim_of(device: Device) -> SimBackend:
    """Return the backend of a simulated device."""
    assert isinstance(device.backend, SimBackend)
    return device.backend
