"""A NumPy backend with asynchronous copies to the host, sound and with faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from polyhal.backends.common.launching.completion import Completion
from polyhal.backends.numpy.backend import CoreNumpyBackend, create
from polyhal.hal.errors import BackendError


class ReadEvent:
    """A copy that is complete when `Completion` says so."""

    def __init__(self) -> None:
        self.completion = Completion()

    def wait(self) -> None:
        self.completion.wait()

    def is_complete(self) -> bool:
        return self.completion.is_set()

    def add_callback(self, callback: Callable[[BaseException | None], None]) -> None:
        self.completion.add_callback(callback)


class AsyncReadBackend(CoreNumpyBackend):
    """Takes the bytes at once, and delivers them on a thread."""

    def __init__(self) -> None:
        super().__init__(create("contiguous_only").info)

    def copy_from_device_async(self, src: Any, offset: int, dst: memoryview) -> ReadEvent:
        content = src[offset : offset + dst.nbytes].copy()
        event = ReadEvent()

        def deliver() -> None:
            dst[:] = content.data
            event.completion.set(None)

        threading.Thread(target=deliver).start()
        return event


class ReadsLater(AsyncReadBackend):
    """Takes the bytes after later work."""

    def copy_from_device_async(self, src: Any, offset: int, dst: memoryview) -> ReadEvent:
        event = ReadEvent()

        def deliver() -> None:
            time.sleep(0.2)
            dst[:] = src[offset : offset + dst.nbytes].data
            event.completion.set(None)

        threading.Thread(target=deliver).start()
        return event


class IgnoresOffsets(AsyncReadBackend):
    """Always copies from the start."""

    def copy_from_device_async(self, src: Any, offset: int, dst: memoryview) -> ReadEvent:
        return super().copy_from_device_async(src, 0, dst)


class _TwiceCalling(ReadEvent):
    def add_callback(self, callback: Callable[[BaseException | None], None]) -> None:
        super().add_callback(callback)
        super().add_callback(callback)


class CallsTwice(AsyncReadBackend):
    """Calls each callback twice."""

    def copy_from_device_async(self, src: Any, offset: int, dst: memoryview) -> ReadEvent:
        event = super().copy_from_device_async(src, offset, dst)
        twice = _TwiceCalling()
        event.add_callback(twice.completion.set)
        return twice


class CallsEarly(AsyncReadBackend):
    """Calls back before the bytes have arrived."""

    def copy_from_device_async(self, src: Any, offset: int, dst: memoryview) -> ReadEvent:
        content = src[offset : offset + dst.nbytes].copy()
        event = ReadEvent()

        def deliver() -> None:
            time.sleep(0.2)
            dst[:] = content.data

        event.completion.set(None)
        threading.Thread(target=deliver).start()
        return event


class FailsReads(AsyncReadBackend):
    """Every copy fails."""

    error = BackendError("[copy] the link is down")

    def copy_from_device_async(self, src: Any, offset: int, dst: memoryview) -> ReadEvent:
        event = ReadEvent()
        threading.Timer(0.05, event.completion.set, (self.error,)).start()
        return event
