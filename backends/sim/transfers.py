"""Copies by DMA: between host and device, within the device, and between devices."""

from __future__ import annotations

import zlib

import numpy as np

from polyhal.backends.sim.driver import SimDriver
from polyhal.backends.sim.event_log import Action
from polyhal.backends.sim.events import ReadEvent, SimEvent
from polyhal.backends.sim.packets import Copy, CopyDirection


def write(driver: SimDriver, src: memoryview, address: int) -> None:
    """Enqueue a copy to the device. The bytes are staged, so that the caller may change them at once."""
    staged = np.frombuffer(src, np.uint8).copy()
    _write(driver, staged, address, staged=staged.nbytes)


def write_pinned(driver: SimDriver, src: memoryview, address: int) -> SimEvent:
    """Enqueue a copy to the device straight from `src`, which must not change until the event is complete."""
    event = SimEvent(driver)
    _write(driver, np.frombuffer(src, np.uint8), address, event=event)
    driver.flush()
    return event


def _write(
    driver: SimDriver, data: np.ndarray, address: int, *, staged: int = 0, event: SimEvent | None = None
) -> None:
    crc32 = zlib.crc32(data.data)
    pinned = driver.gpu.pinned_memory.pin(data)
    driver.log(Action.WRITE, f"{data.nbytes} bytes to {address:#x}", address=address, nbytes=data.nbytes)
    driver.submit(
        lambda header: Copy(header, pinned, address, data.nbytes, crc32, CopyDirection.HOST_TO_DEVICE),
        event=event,
        pinned=pinned,
        staged=staged,
        profiled=int(event is not None),
    )


def read(driver: SimDriver, address: int, dst: memoryview) -> ReadEvent:
    """Start a copy from the device into `dst`, which must not be accessed until the event is complete."""
    event = ReadEvent(driver, dst)
    pinned = driver.gpu.pinned_memory.pin(dst)
    driver.log(Action.READ, f"{dst.nbytes} bytes from {address:#x}", address=address, nbytes=dst.nbytes)
    driver.submit(
        lambda header: Copy(header, address, pinned, dst.nbytes, 0, CopyDirection.DEVICE_TO_HOST),
        event=event,
        pinned=pinned,
    )
    driver.flush()
    return event


def copy_within(driver: SimDriver, source: int, destination: int, nbytes: int) -> None:
    """Enqueue a copy from one range of device memory to another."""
    driver.submit(
        lambda header: Copy(header, source, destination, nbytes, 0, CopyDirection.DEVICE_TO_DEVICE), profiled=1
    )


def copy_to_peer(driver: SimDriver, source: int, peer: int, destination: int, nbytes: int) -> SimEvent:
    """Enqueue a copy to the memory of another device of the machine, and return its event."""
    event = SimEvent(driver)
    driver.submit(
        lambda header: Copy(header, source, destination, nbytes, 0, CopyDirection.DEVICE_TO_PEER, peer),
        event=event,
        profiled=1,
    )
    driver.flush()
    return event
