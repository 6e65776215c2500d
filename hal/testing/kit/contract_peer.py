"""Checks of copies from the memory of another device: their order in both devices' work, ranges and events."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.plugins import probing
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.peer_memory import SupportsPeerCopy
from polyhal.hal.protocol import ComputeBackend, Handle, SupportsStreams
from polyhal.hal.system.discovery.registry import registry
from polyhal.hal.testing.kit.core_only import CoreOnlyBackend
from polyhal.hal.testing.kit.member_calls import MemberCheck
from polyhal.hal.testing.kit.scope import Scope

_TIMEOUT = 60.0
"""Seconds after which a callback counts as lost."""
_SIZES = (300_000, 4096)
"""Numbers of copied elements; in a small scope only the last."""
_STEPS = 50
_ROOM = 32 << 20
"""Bytes of memory required of a peer: some test devices have little memory on purpose."""


def checks(device: Device, scope: Scope) -> Iterator[tuple[str, MemberCheck]]:
    """Yield the checks by name, within the device and from another one; none if the device does not support such copies."""
    backend = device.backend
    if not isinstance(backend, SupportsPeerCopy):
        return
    yield "peer_copy/accepted", lambda: accepted(backend)
    for check in (order, ranges, released_memory, streams, event):
        name = check.__name__
        yield f"peer_copy/{name}", _within(check, backend, scope)
        yield f"peer_copy/{name}_of_another", _from_others(check, device, scope)


def _within(check: Callable[..., None], backend: Any, scope: Scope) -> MemberCheck:
    return lambda: check(backend, backend, scope)


def _from_others(check: Callable[..., None], device: Device, scope: Scope) -> MemberCheck:
    def run() -> None:
        for peer in peers(device):
            check(device.backend, peer, scope)
            check(peer, device.backend, scope)

    return run


def peers(device: Device) -> list[ComputeBackend]:
    """Return other devices to copy from: open devices with enough memory, and the same device opened a second time."""
    known = registry()
    others = [d.backend for d in known.opened() if d.backend is not device.backend and d.pool.available >= _ROOM]
    spec = known.backends.get(device.info.backend)
    if spec is not None:
        with contextlib.suppress(Exception):  # some devices cannot be opened twice
            others.append(probing.resolve(spec.create)(device.info.selector))
    backend = device.backend
    assert isinstance(backend, SupportsPeerCopy)
    return [
        other
        for other in others
        if backend.can_copy_from(other) and isinstance(other, SupportsPeerCopy) and other.can_copy_from(backend)
    ]


def accepted(backend: Any) -> None:
    """Check the peers that the device accepts."""
    assert backend.can_copy_from(backend) is True, "can_copy_from is not True for the backend itself"
    stranger = CoreOnlyBackend(backend)
    assert backend.can_copy_from(stranger) is False, f"can_copy_from is not False for a {type(stranger).__name__}"


class _Array:
    """An array of float32 numbers in a separate allocation."""

    def __init__(self, backend: ComputeBackend, size: int, value: float) -> None:
        self._backend = backend
        spec = contiguous(dtypes.float32, (size,))
        self.nbytes = spec.nbytes
        self.handle: Handle = backend.allocate(spec.nbytes)
        self.ref = Ref(self.handle, spec, 0)
        self.fill(value)

    def fill(self, value: float) -> None:
        self._backend.fill(value, self.ref)

    def add(self, other: _Array, out: _Array) -> None:
        self._backend.binary("add", self.ref, other.ref, out.ref)

    def numpy(self) -> np.ndarray:
        out = bytearray(self.nbytes)
        self._backend.copy_from_device(self.handle, 0, memoryview(out))
        return np.frombuffer(out, np.float32)

    def check(self, expected: float, what: str) -> None:
        values = self.numpy()
        wrong = np.count_nonzero(values != expected)
        assert not wrong, f"{what}: {wrong} of {values.size} elements are not {expected}; the first is {values[0]}"

    def release(self) -> None:
        self._backend.deallocate(self.handle)


def _sizes(scope: Scope) -> tuple[int, ...]:
    return _SIZES[-1:] if scope.small else _SIZES


def order(target: Any, source: Any, scope: Scope) -> None:
    """Check that a copy is ordered between earlier and later work, on both devices."""
    for size in _sizes(scope):
        total, one, last = (_Array(source, size, value) for value in (0.0, 1.0, 0.0))
        received, half, result = (_Array(target, size, value) for value in (-1.0, 0.5, 0.0))
        try:
            for _ in range(_STEPS):
                total.add(one, last)
                last.add(one, total)
                received.add(half, result)
                result.add(half, received)
            target.copy_from_peer(source, total.handle, 0, received.handle, 0, total.nbytes)
            total.fill(-7.0)
            total.add(one, last)
            received.add(half, result)
            result.check(2 * _STEPS + 0.5, "work that was enqueued after a copy, on the receiving device")
            received.check(2 * _STEPS, "a copy of the result of 100 steps")
            last.check(-6.0, "work that was enqueued after a copy, on the sending device")
        finally:
            for array in (total, one, last, received, half, result):
                array.release()


def ranges(target: Any, source: Any, scope: Scope) -> None:
    """Check copies of byte ranges at any offset."""
    content = bytes(i * 7 % 251 for i in range(1024))
    src, dst = source.allocate(len(content)), target.allocate(len(content))
    try:
        source.copy_to_device(memoryview(content), src, 0)
        for src_offset, dst_offset, nbytes in ((0, 0, 1024), (3, 7, 5), (1020, 0, 4), (1, 1023, 1), (255, 256, 513)):
            expected = bytearray(b"\xee" * 1024)
            target.copy_to_device(memoryview(expected), dst, 0)
            target.copy_from_peer(source, src, src_offset, dst, dst_offset, nbytes)
            out = bytearray(1024)
            target.copy_from_device(dst, 0, memoryview(out))
            expected[dst_offset : dst_offset + nbytes] = content[src_offset : src_offset + nbytes]
            assert out == expected, f"wrong bytes after a copy of {nbytes} bytes from byte {src_offset} to {dst_offset}"
    finally:
        source.deallocate(src)
        target.deallocate(dst)


def released_memory(target: Any, source: Any, scope: Scope) -> None:
    """Check that memory may be released during a copy, and that newly allocated memory may then be overwritten."""
    for size in _sizes(scope):
        total = _Array(source, size, 0.0)
        received, abandoned = _Array(target, size, 0.0), _Array(target, size, 0.0)
        for step in range(_STEPS):
            total.fill(step + 1.0)
        target.copy_from_peer(source, total.handle, 0, received.handle, 0, total.nbytes)
        target.copy_from_peer(source, total.handle, 0, abandoned.handle, 0, total.nbytes)
        total.release()
        abandoned.release()
        arrays = [_Array(source, size, -5.0), _Array(target, size, -6.0), received]
        try:
            received.check(_STEPS, "a copy from released memory")
            arrays[1].check(-6.0, "memory allocated after the release of a copy's target")
        finally:
            for array in arrays:
                array.release()


def streams(target: Any, source: Any, scope: Scope) -> None:
    """Check that a copy on separate streams waits for events of both devices, and that they can wait for its event."""
    backends: list[Any] = [target] if source is target else [target, source]
    if not all(isinstance(b, SupportsStreams) for b in backends):
        return
    for size in _sizes(scope):
        total, received, result = _Array(source, size, 0.0), _Array(target, size, -1.0), _Array(target, size, 0.0)
        opened = [b.open_stream() for b in backends]
        try:
            for step in range(_STEPS):
                total.fill(step + 1.0)
                received.fill(-1.0)
            ready = [b.mark() for b in backends]
            previous = [b.switch_stream(s) for b, s in zip(backends, opened, strict=True)]
            try:
                for b, before in zip(backends, ready, strict=True):
                    b.wait_for(before)
                done = target.copy_from_peer(source, total.handle, 0, received.handle, 0, total.nbytes)
            finally:
                for b, stream in zip(backends, previous, strict=True):
                    b.switch_stream(stream)
            for b in backends:
                b.wait_for(done)
            total.fill(-7.0)
            received.add(received, result)
            result.check(2.0 * _STEPS, "work on one stream after a copy on another")
        finally:
            for array in (total, received, result):
                array.release()


def event(target: Any, source: Any, scope: Scope) -> None:
    """Check that the event of a copy completes by itself, and calls every callback once."""
    size = _sizes(scope)[0]
    total, received = _Array(source, size, 3.0), _Array(target, size, 0.0)
    try:
        for _ in range(_STEPS):
            total.fill(4.0)
        done = target.copy_from_peer(source, total.handle, 0, received.handle, 0, total.nbytes)
        errors: list[BaseException | None] = []
        called = threading.Semaphore(0)

        def callback(error: BaseException | None) -> None:
            errors.append(error)
            called.release()

        done.add_callback(callback)
        assert called.acquire(timeout=_TIMEOUT), f"the callback was not called within {_TIMEOUT:.0f} s"
        assert done.is_complete(), "the callback was called before the event was complete"
        done.wait()
        done.add_callback(callback)
        assert called.acquire(timeout=_TIMEOUT), f"a late callback was not called within {_TIMEOUT:.0f} s"
        assert errors == [None, None], f"the callbacks were called with {errors}, expected None and None"
        received.check(4.0, "a copy whose event is complete")
    finally:
        total.release()
        received.release()
