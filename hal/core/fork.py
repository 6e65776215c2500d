"""Forked processes: drivers do not survive a fork, so the use of a parent's device in a child raises an error.

A child has the parent's memory but none of its threads: most calls of a driver would deadlock. The devices are made
unusable once, in the child, so that their use needs no check. NumPy has no driver, so its devices stay usable.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from polyhal.hal.core.execution.executor import structure
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import DeviceLostError, message

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_FIX = 'use multiprocessing\'s start method "spawn", or open devices in children only'


class AbandonedBackend:
    """Replaces the backend, the pool and the planner of a device in a forked child. Any use raises DeviceLostError."""

    def __init__(self, device: Device) -> None:
        self.info = device.info
        self.capabilities = device.capabilities
        self._name = device.name

    def __getattr__(self, member: str) -> NoReturn:
        raise DeviceLostError(
            message(None, "the device was opened before the process was forked", fix=_FIX, device=self._name)
        )


class OpenDevices:
    """All devices of this process, and the backends whose drivers ran before a fork."""

    def __init__(self) -> None:
        self.devices: weakref.WeakSet[Device] = weakref.WeakSet()
        self.abandoned: set[str] = set()
        """Backend parts of the names of abandoned devices."""

    def refusal(self, backend: str) -> str | None:
        """Return the reason why a backend cannot open devices in this process; None if it can."""
        return f"its driver ran before the process was forked; {_FIX}" if backend in self.abandoned else None

    def abandon(self) -> None:
        """Make all devices with a driver unusable. Called in a forked child."""
        for device in list(self.devices):
            if device.capabilities.reference:
                continue
            stand_in: Any = AbandonedBackend(device)
            device.pool.abandon(stand_in)
            device.abandon(stand_in)
            self.abandoned.add(device.name.partition(":")[0])
            self.devices.discard(device)
        if self.abandoned:
            structure.forks += 1
            _end_without_exit_handlers()
        # Plans of calls and captured steps hold kernels of the driver: they are dropped, and new ones raise in the replacement.
        settings.forget_plans()
        structure.changed()


def _end_without_exit_handlers() -> None:
    """Skip exit handlers of drivers, which would wait for threads that do not exist in this process."""
    with contextlib.suppress(
        AttributeError, OSError, TypeError
    ):  # systems without `on_exit`, or without a C library to load
        libc = ctypes.CDLL(None)
        libc.on_exit(
            libc._exit, None
        )  # handlers run in the reverse order, and this one ends the process with its status


@functools.cache
def process_devices() -> OpenDevices:
    """Return the devices of this process."""
    devices = OpenDevices()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=devices.abandon)
    return devices
