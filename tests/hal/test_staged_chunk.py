"""Chunks in flight between devices: staging memory is reused when all targets have copied its bytes, and not before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from polyhal.backends.numpy.backend import CoreNumpyBackend, create
from polyhal.hal import dtypes
from polyhal.hal.core.memory.staging_pool import StagingPool
from polyhal.hal.core.transfers import staged_chunk
from polyhal.hal.core.transfers.staged_chunk import Endpoint, StagedChunk
from polyhal.hal.device import Device

_BYTES = 4096


class LateEvent:
    """A copy that runs when it is waited for, the latest time allowed."""

    def __init__(self, backend: LateWrites, *copy: Any) -> None:
        self._backend = backend
        self._copy = copy

    def wait(self) -> None:
        self._backend.copy_to_device(*self._copy)

    def is_complete(self) -> bool:
        return self._backend.idle


class LateWrites(CoreNumpyBackend):
    """A backend that copies from page-locked memory as late as allowed."""

    idle = False

    def __init__(self) -> None:
        super().__init__(create("").info)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        return memoryview(bytearray(nbytes))

    def copy_to_device_async(self, src: memoryview, dst: Any, offset: int) -> LateEvent:
        return LateEvent(self, src, dst, offset)


class CountedStaging(StagingPool[memoryview]):
    """A pool that counts its allocations."""

    def __init__(self) -> None:
        self.made = 0
        super().__init__(self._make)

    def _make(self, nbytes: int) -> memoryview:
        self.made += 1
        return memoryview(bytearray(nbytes))


class Array:
    """Memory of a device filled with one byte."""

    def __init__(self, device: Device, value: int) -> None:
        self.device = device
        self._buffer, self._ref = device.upload(np.full(_BYTES, value, np.uint8), dtypes.uint8)
        self.endpoint = Endpoint(device, self._buffer.handle, 0)

    def holds(self, value: int) -> bool:
        return bool((self.device.download(self._ref) == value).all())


def _send(staging: CountedStaging, value: int, targets: Sequence[Array]) -> None:
    """Write one byte to all targets, through a chunk."""
    source = Array(Device("numpy"), value)
    chunk = StagedChunk(staging, _BYTES)
    chunk.read(source.endpoint)
    chunk.write([target.endpoint for target in targets])


def test_the_last_target_releases_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_chunk, "SMALL", _BYTES)
    backends = [LateWrites() for _ in range(2)]
    devices = [Device.opened("late", backend) for backend in backends]
    targets, others = ([Array(d, 0) for d in devices] for _ in range(2))
    staging = CountedStaging()
    _send(staging, 1, targets)
    # A device's next copy detects that the previous one is complete. The first chunk is free when both devices have done so.
    for value, device, made in ((2, 0, 2), (3, 1, 3), (4, 1, 3)):
        backends[device].idle = True
        _send(staging, value, [others[device]])
        assert staging.made == made
    assert all(target.holds(1) for target in targets)


def test_small_chunks_are_free_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_chunk, "SMALL", _BYTES + 1)
    target, staging = Array(Device.opened("late", LateWrites()), 0), CountedStaging()
    for value in range(1, 4):
        _send(staging, value, [target])
        assert target.holds(value)
    assert staging.made == 1
