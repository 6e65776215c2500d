"""Buffers that are mapped for the host after a submission.

A poll that waits lets no other thread submit, so only a thread that needs the bytes waits in one, and for its own
submission only: later ones may run meanwhile.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Protocol

from polyhal.backends.wgpu.native import binding


class HostMapping(Protocol):
    """A buffer that is being mapped."""

    def proceed(self) -> bool:
        """Return whether the buffer is mapped, or mapping it failed. Blocks only if that does not block submissions."""

    def wait(self) -> None:
        """Wait for the buffer to be mapped. Raises errors of the library."""

    def read(self, start: int, target: memoryview) -> None:
        """Copy bytes from `start` on to `target`, and unmap the buffer."""


Mapper = Callable[[Any, int, "int | None"], HostMapping]
"""Starts to map (buffer, bytes), which a submission of that number fills."""


def mapper(device: Any) -> Mapper:
    """Return the fastest function that maps buffers."""
    api = binding("ffi", "lib", "libf", "from_c_string_view")
    names = ("wgpuBufferMapAsync", "wgpuBufferGetConstMappedRange", "wgpuBufferUnmap", "wgpuDevicePoll")
    if api is None or not all(hasattr(api.libf, name) for name in names):
        return lambda buffer, nbytes, submission: _PublicMapping(buffer, nbytes)
    native = _NativeMapper(api, device)
    return lambda buffer, nbytes, submission: (
        _PublicMapping(buffer, nbytes) if submission is None else native.start(buffer, nbytes, submission)
    )


class _NativeMapper:
    """Calls of the native library for one device."""

    def __init__(self, api: Any, device: Any) -> None:
        self._api, self._device = api, device
        self._numbers = itertools.count(1)
        self._pending: dict[int, _NativeMapping] = {}
        self._interruption: BaseException | None = None
        types = "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)"
        self._callback = api.ffi.callback(types, self._mapped, onerror=self._interrupted)

    def start(self, buffer: Any, nbytes: int, submission: int) -> _NativeMapping:
        """Start to map a buffer."""
        ffi, number = self._api.ffi, next(self._numbers)
        info = ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode = self._api.lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = self._callback
        info.userdata1 = ffi.cast("void *", number)
        mapping = self._pending[number] = _NativeMapping(self, buffer, nbytes, submission)
        self._api.libf.wgpuBufferMapAsync(buffer._internal, self._api.lib.WGPUMapMode_Read, 0, nbytes, info[0])
        return mapping

    def _mapped(self, status: int, text: Any, number: Any, _: Any) -> None:
        key = int(self._api.ffi.cast("uintptr_t", number))
        if (mapping := self._pending.get(key)) is None:
            return
        if status != self._api.lib.WGPUMapAsyncStatus_Success:
            mapping.problem = f"Could not map buffer ({status} : {self._api.from_c_string_view(text)})."
        mapping.is_done.set()
        del self._pending[key]

    def _interrupted(self, _: Any, error: BaseException, trace: Any) -> None:
        """Complete the mapping whose callback `error`, such as a KeyboardInterrupt, ended; `poll` raises it.

        The library's code cannot pass it on, and nobody would complete the mapping.
        """
        values = trace.tb_frame.f_locals
        self._mapped(values["status"], values["text"], values["number"], None)
        self._interruption = error

    def poll(self, submission: int | None) -> None:
        """Process what the device has finished, after waiting for a submission if it is given."""
        ffi = self._api.ffi
        awaited = ffi.NULL if submission is None else ffi.new("WGPUSubmissionIndex *", submission)
        self._api.libf.wgpuDevicePoll(self._device._internal, submission is not None, awaited)
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise interruption

    def copy(self, buffer: Any, nbytes: int, start: int, target: memoryview) -> None:
        """Copy bytes of a mapped buffer."""
        place = self._api.libf.wgpuBufferGetConstMappedRange(buffer._internal, 0, nbytes)
        target[:] = memoryview(self._api.ffi.buffer(place, nbytes))[start : start + target.nbytes]

    def unmap(self, buffer: Any) -> None:
        self._api.libf.wgpuBufferUnmap(buffer._internal)


class _NativeMapping:
    """A buffer that the native library maps. Any thread that polls may complete it."""

    def __init__(self, mapper: _NativeMapper, buffer: Any, nbytes: int, submission: int) -> None:
        self._mapper, self._buffer, self._nbytes, self._submission = mapper, buffer, nbytes, submission
        self.is_done = threading.Event()
        self._is_copied = False
        self.problem = ""

    def proceed(self) -> bool:
        if not self.is_done.is_set():
            self._mapper.poll(None)
        return self.is_done.is_set()

    def wait(self) -> None:
        if not self.is_done.is_set():
            self._mapper.poll(self._submission)
            self.is_done.wait()  # another thread may be about to complete it
        if self.problem:
            raise RuntimeError(self.problem)

    def read(self, start: int, target: memoryview) -> None:
        if self._is_copied:  # by a call that was interrupted
            return
        self._mapper.copy(self._buffer, self._nbytes, start, target)
        self._is_copied = True
        self._mapper.unmap(self._buffer)


class _PublicMapping:
    """A buffer that the package maps, whose own thread polls."""

    def __init__(self, buffer: Any, nbytes: int) -> None:
        import wgpu

        self._buffer, self._nbytes = buffer, nbytes
        self._promise = buffer.map_async(wgpu.MapMode.READ, 0, nbytes)

    def proceed(self) -> bool:
        self.wait()
        return True

    def wait(self) -> None:
        self._promise.sync_wait()

    def read(self, start: int, target: memoryview) -> None:
        try:
            view = self._buffer.read_mapped(0, self._nbytes, copy=False)
            target[:] = view[start : start + target.nbytes]
            view.release()
        finally:
            self._buffer.unmap()
