"""Observers of copies from the host to devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyhal.hal.device import Device

    UploadObserver = Callable[[Device, int, int, int], None]

UPLOADS: list[UploadObserver] = []
"""Called after each copy with the device, its bytes, and its begin and end by `time.perf_counter_ns`. Mostly empty."""
