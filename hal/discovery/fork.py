"""Forked processes: drivers do not survive a fork, so a child that uses a device of its parent gets an error.

A child has the parent's memory but none of its threads: most calls of a driver would wait for ever. The devices are made
unusable in the child, once, so that nothing is checked when they are used. NumPy needs no driver, so its devices stay usable.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from polyhal.hal.errors import DeviceLostError, message
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_FIX = 'use multiprocessing\'s start method "spawn", or open devices in children only'


class AbandonedBackend:
    """Stands for the backend, the pool and the planner of a device in a forked child. Any use raises DeviceLostError."""

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
        """The first parts of the names of abandoned devices."""

    def refusal(self, backend: str) -> str | None:
        """Return why a backend opens no device in this process; None if it may."""
        return f"its driver ran before the process was forked; {_FIX}" if backend in self.abandoned else None

    def abandon(self) -> None:
        """Make the devices unusable that need a driver. Called in a forked child."""
        from polyhal.hal.dispatch.executor import structure

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
        # Plans of calls and captured steps hold kernels of the driver: all are made again, which the stand-in refuses.
        settings.forget_plans()
        structure.changed()


def _end_without_exit_handlers() -> None:
    """Let this process end as soon as Python has finished: exit handlers of drivers wait for threads that it does not have."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # systems without it, or without a C library to name
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
