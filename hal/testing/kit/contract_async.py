"""Checks of asynchronous copies to the host: their order in the device's work, events and callbacks."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import CompletionEvent, Handle, SupportsAsyncRead
from polyhal.hal.testing.kit.member_calls import MemberCheck
from polyhal.hal.testing.kit.scope import Scope

_TIMEOUT = 60.0
"""Seconds after which a callback counts as lost."""
_SIZE = 4096
"""Elements of the read arrays; fewer in a small scope."""
_SMALL_SIZE = 128


class _Read:
    """A copy to the host, with the arguments of its callback and the destination's bytes at that time."""

    def __init__(self, backend: SupportsAsyncRead, handle: Handle, offset: int, nbytes: int) -> None:
        self._out = bytearray(nbytes)
        self._called = threading.Event()
        self.errors: list[BaseException | None] = []
        self.seen = b""
        self.complete = False
        self.event: CompletionEvent = backend.copy_from_device_async(handle, offset, memoryview(self._out))
        self.event.add_callback(self._callback)

    def _callback(self, error: BaseException | None) -> None:
        self.seen = bytes(self._out)
        self.complete = self.event.is_complete()
        self.errors.append(error)
        self._called.set()

    def check(self, expected: bytes, what: str) -> None:
        """Wait for the callback. Raise AssertionError unless it was called once, in time, with the expected bytes in place."""
        assert self._called.wait(_TIMEOUT), f"{what}: the callback was not called within {_TIMEOUT:.0f} s"
        self.event.wait()
        assert self.errors == [None], f"{what}: the callback was called with {self.errors}, expected one call with None"
        assert self.complete, f"{what}: the callback was called before the event was complete"
        assert self.event.is_complete(), f"{what}: the event is not complete after wait"
        assert self.seen == expected, f"{what}: wrong bytes at the time of the callback"
        assert self._out == expected, f"{what}: wrong bytes"


class _Counter:
    """A counter array on the device: each step is work that depends on the previous step."""

    def __init__(self, device: Device, scope: Scope) -> None:
        self._backend = device.backend
        self._size = _SMALL_SIZE if scope.small else _SIZE
        spec = contiguous(dtypes.float32, (self._size,))
        self.handle = self._backend.allocate(spec.nbytes)
        self._one, self._sum = (self._backend.allocate(spec.nbytes) for _ in range(2))
        self._refs = tuple(Ref(handle, spec, 0) for handle in (self.handle, self._one, self._sum))
        self._backend.fill(0.0, self._refs[0])
        self._backend.fill(1.0, self._refs[1])
        self.value = 0

    def count(self, steps: int) -> bytes:
        """Enqueue steps. Returns the bytes of the array after them."""
        value, one, total = self._refs
        for _ in range(steps):
            self._backend.binary("add", value, one, total)
            self._backend.copy(total, value)
        self.value += steps
        return np.full(self._size, self.value, np.float32).tobytes()

    def release(self) -> None:
        """Release the memory."""
        for handle in (self.handle, self._one, self._sum):
            self._backend.deallocate(handle)


def checks(device: Device, scope: Scope) -> Iterator[tuple[str, MemberCheck]]:
    """Yield the checks by name; none if the device does not support asynchronous copies to the host."""
    backend = device.backend
    if not isinstance(backend, SupportsAsyncRead):
        return
    yield "async_read/order", lambda: order(device, backend, scope)
    yield "async_read/ranges", lambda: ranges(device, backend)
    yield "async_read/outstanding", lambda: outstanding(device, backend, scope)
    yield "async_read/late_callbacks", lambda: late_callbacks(device, backend, scope)
    yield "async_read/released_memory", lambda: released_memory(device, backend, scope)


def order(device: Device, backend: SupportsAsyncRead, scope: Scope) -> None:
    """Check that a copy is ordered after work enqueued before it and before later work."""
    counter = _Counter(device, scope)
    try:
        expected = counter.count(100)
        read = _Read(backend, counter.handle, 0, len(expected))
        counter.count(20)
        device.backend.copy_to_device(memoryview(bytes(len(expected))), counter.handle, 0)
        read.check(expected, "a copy between work on the same memory")
    finally:
        counter.release()


def ranges(device: Device, backend: SupportsAsyncRead) -> None:
    """Check copies of byte ranges at any offset."""
    content = bytes(i * 7 % 251 for i in range(1024))
    handle = device.backend.allocate(len(content))
    try:
        device.backend.copy_to_device(memoryview(content), handle, 0)
        for offset, nbytes in ((0, 1024), (3, 5), (1020, 4), (1023, 1), (255, 513)):
            read = _Read(backend, handle, offset, nbytes)
            read.check(content[offset : offset + nbytes], f"{nbytes} bytes from byte {offset}")
    finally:
        device.backend.deallocate(handle)


def outstanding(device: Device, backend: SupportsAsyncRead, scope: Scope) -> None:
    """Check many copies in flight at once, from two threads, with work between them."""

    def run() -> None:
        try:
            counter = _Counter(device, scope)
            try:
                reads = []
                for _ in range(8 if scope.small else 24):
                    expected = counter.count(2)
                    reads.append((_Read(backend, counter.handle, 0, len(expected)), expected))
                for k, (read, expected) in enumerate(reads):
                    read.check(expected, f"copy {k} of {len(reads)}")
            finally:
                counter.release()
        except BaseException as error:
            failures.append(error)

    failures: list[BaseException] = []
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def late_callbacks(device: Device, backend: SupportsAsyncRead, scope: Scope) -> None:
    """Check that every callback of an event is called once, including callbacks added after completion."""
    counter = _Counter(device, scope)
    try:
        expected = counter.count(3)
        read = _Read(backend, counter.handle, 0, len(expected))
        early, late = (threading.Semaphore(0) for _ in range(2))
        read.event.add_callback(lambda error: early.release())
        read.event.wait()
        read.event.add_callback(lambda error: late.release())
        for callback, name in ((early, "second"), (late, "late")):
            assert callback.acquire(timeout=_TIMEOUT), f"the {name} callback was not called within {_TIMEOUT:.0f} s"
        read.check(expected, "a copy with three callbacks")
        device.backend.synchronize()
        assert not early.acquire(blocking=False), "a callback was called twice"
        assert not late.acquire(blocking=False), "a late callback was called twice"
    finally:
        counter.release()


def released_memory(device: Device, backend: SupportsAsyncRead, scope: Scope) -> None:
    """Check that memory may be released during a copy, and that newly allocated memory may then be overwritten."""
    counter = _Counter(device, scope)
    expected = counter.count(50)
    read = _Read(backend, counter.handle, 0, len(expected))
    counter.release()
    again = device.backend.allocate(len(expected))
    try:
        device.backend.copy_to_device(memoryview(b"\xff" * len(expected)), again, 0)
        read.check(expected, "a copy from released memory")
    finally:
        device.backend.deallocate(again)
