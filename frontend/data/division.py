"""Batches whose rows are divided among several devices; each part is copied directly to its device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from polyhal.data.transfer import BatchSlot, UploadSlot, map_arrays, slot_factory
from polyhal.hal.device import Device
from polyhal.hal.ops.tensor_like import Array
from polyhal.tensor import Tensor


class BatchDivision(Protocol):
    """Division of the rows of a batch, as by `parallel.DataParallel`."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of the parts."""

    def counts(self, rows: int) -> tuple[int, ...]:
        """Return the number of rows per device for a batch of `rows` rows."""

    def as_shards(self, parts: Sequence[Tensor]) -> Any:
        """Return the parts of one array as one object."""


class DividedSlot:
    """One slot for each device, which receives its rows of every array."""

    retained: ClassVar[int] = 2
    gathers = False

    def __init__(self, division: BatchDivision, slots: Sequence[BatchSlot]) -> None:
        self._division = division
        self._slots = list(slots)

    def load(self, batch: Sequence[Array]) -> None:
        rows: list[int] = []
        map_arrays(batch, lambda array: rows.append(len(array)))
        counts = self._division.counts(rows[0]) if rows else ()
        start = 0
        for slot, count in zip(self._slots, counts, strict=True):
            slot.load(_rows(batch, start, start + count))
            start += count

    def deliver(self) -> Any:
        return _joined([slot.deliver() for slot in self._slots], self._division)

    def release(self) -> None:
        for slot in self._slots:
            slot.release()

    def wait(self) -> None:
        for slot in self._slots:
            slot.wait()

    def release_memory(self) -> None:
        for slot in self._slots:
            slot.release_memory()


def divided_slot_factory(division: BatchDivision) -> Callable[[], BatchSlot]:
    """Return the function that makes the slots of a loader whose batches are divided."""
    makers = [slot_factory(device) for device in division.devices]
    return lambda: DividedSlot(division, [make() for make in makers])


def divided_upload_slot(division: BatchDivision) -> BatchSlot:
    """Return a slot for batches that are uploaded on demand."""
    return DividedSlot(division, [UploadSlot(device) for device in division.devices])


def _rows(batch: Sequence[Array], start: int, end: int) -> Any:
    def of(array: np.ndarray) -> np.ndarray:
        return array[start:end]

    return map_arrays(batch, of)


def _joined(parts: Sequence[Any], division: BatchDivision) -> Any:
    """Return the parts of a batch as one batch, with joined parts in place of tensors."""
    first = parts[0]
    if isinstance(first, Tensor):
        return division.as_shards(parts)
    if isinstance(first, dict):
        return {key: _joined([part[key] for part in parts], division) for key in first}
    if isinstance(first, (tuple, list)):
        members = [_joined(several, division) for several in zip(*parts, strict=True)]
        return type(first)(*members) if hasattr(first, "_fields") else type(first)(members)
    return first
