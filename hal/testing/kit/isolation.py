"""Devices of the kit's own around a backend that is open already: their plans and pools are not those of the program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from polyhal.hal.device import Device
from polyhal.hal.kernels.quarantine import EMPTY, Quarantine


def isolated(device: Device, quarantine: Quarantine = EMPTY) -> Device:
    """Another device around the same backend, on which nothing but `quarantine` is passed over."""
    made = Device.opened(device.name, device.backend)
    made.planner.quarantine = quarantine
    return made


def strict() -> AbstractContextManager[None]:
    """Refuse host fallbacks and kernels that do not build, for the whole process: a check must see what fails."""
    return policies(POLYHAL_FALLBACK="error", POLYHAL_STRICT="1")


@contextmanager
def policies(**values: str) -> Iterator[None]:
    """Set environment variables inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
