"""Debug mode: checks that cost time, on every device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyhal.hal.settings import env
from polyhal.hal.settings.state import settings


def debug(enabled: bool = True) -> None:
    """Switch debug mode on or off for the process; POLYHAL_DEBUG=1 begins with it on.

    Eager calls then raise IndexError for an index or a label out of range on every device, as they always do on CPUs. A
    check waits for the device. Captured steps are not checked: floats read out of range are NaN there.
    """
    settings.index_checks = "all" if enabled else "cpu"


def is_debug() -> bool:
    """The setting in force."""
    return settings.index_checks == "all"


@contextmanager
def without_index_checks() -> Iterator[None]:
    """Let kernels see indices out of range inside the block, on every device: for tests of kernels."""
    previous, settings.index_checks = settings.index_checks, "none"
    try:
        yield
    finally:
        settings.index_checks = previous


debug(env.debug())
