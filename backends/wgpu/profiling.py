"""Device timestamps around every dispatch, while profiling is on."""

from __future__ import annotations

import struct
from threading import get_ident
from typing import Any

_CAPACITY = 2048
"""Dispatches per query set; the API allows 4096 queries."""


class Timestamps:
    """Query sets that are filled one after the other."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._sets: list[Any] = []
        self._names: list[str] = []
        self.threads: list[int] = []
        """Threads that enqueued the passes, by `threading.get_ident`."""

    @property
    def count(self) -> int:
        """The number of passes that are timed so far."""
        return len(self._names)

    def next(self, name: str) -> dict[str, Any]:
        """Return the arguments of `begin_compute_pass` that time the pass of the kernel `name`."""
        place = len(self._names) % _CAPACITY
        if place == 0:
            self._sets.append(self._device.create_query_set(type="timestamp", count=2 * _CAPACITY))
        self._names.append(name)
        self.threads.append(get_ident())
        return {
            "timestamp_writes": {
                "query_set": self._sets[-1],
                "beginning_of_pass_write_index": 2 * place,
                "end_of_pass_write_index": 2 * place + 1,
            }
        }

    def read(self) -> list[tuple[str, int, int]]:
        """Return (kernel, start, end) of every pass in nanoseconds. Blocks; all work must be submitted before."""
        import wgpu

        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        events = []
        for i, queries in enumerate(self._sets):
            names = self._names[i * _CAPACITY : (i + 1) * _CAPACITY]
            buffer = self._device.create_buffer(size=16 * len(names), usage=usage)
            encoder = self._device.create_command_encoder()
            encoder.resolve_query_set(queries, 0, 2 * len(names), buffer, 0)
            self._device.queue.submit([encoder.finish()])
            times = struct.unpack(f"<{2 * len(names)}Q", self._device.queue.read_buffer(buffer))
            events += [(name, times[2 * k], times[2 * k + 1]) for k, name in enumerate(names)]
        return events
