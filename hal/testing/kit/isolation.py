"""Isolation of the kit from the program: devices with separate plans and pools, and policies during a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from polyhal.hal.compile.planning.quarantine import EMPTY, Quarantine
from polyhal.hal.device import Device


def isolated(device: Device, quarantine: Quarantine = EMPTY) -> Device:
    """Return another device around the same backend, with only `quarantine` in effect."""
    own = Device.opened(device.name, device.backend, device.origin)
    own.planner.quarantine = quarantine
    return own


def strict() -> AbstractContextManager[None]:
    """Reject undeclared host fallbacks, and raise errors of kernels that do not build, in the whole process."""
    return policies(POLYHAL_FALLBACK="declared", POLYHAL_STRICT="1")


@contextmanager
def policies(**values: str) -> Iterator[None]:
    """Set environment variables inside the block, and restore them afterwards."""
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
