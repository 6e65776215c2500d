"""Devices as users see them: found by name, opened once, each with its pool and its plans."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceInfo, DeviceType
from polyhal.hal.core.backend_failures import note_backend_failure
from polyhal.hal.core.execution.executor import default_device
from polyhal.hal.core.execution.op_plan import PlanCache
from polyhal.hal.core.fork import process_devices
from polyhal.hal.core.memory import last_at_exit  # noqa: F401 (registers itself before anything else does)
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.events import DeviceEvent, record_event
from polyhal.hal.core.memory.foreign import ForeignMemory
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.core.memory.imports import HostImports
from polyhal.hal.core.memory.narrowed import narrowed
from polyhal.hal.core.memory.pool import MemoryStats, Pool, bucket
from polyhal.hal.core.memory.readback import finished, start_read
from polyhal.hal.core.memory.streams import Stream
from polyhal.hal.core.memory.uploads import PendingUploads
from polyhal.hal.core.transfers.uploads_observed import UPLOADS
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import OutOfMemoryError, UnsupportedDTypeError, message, out_of_memory_in
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.peer_memory import SupportsForeignMemory, SupportsMemoryImport
from polyhal.hal.protocol import (
    ComputeBackend,
    Feature,
    SupportsAsyncRead,
    SupportsFlush,
    SupportsLossDetection,
    SupportsPinnedMemory,
    SupportsStreams,
    features_of,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from polyhal.hal.compile.planning.planner import Planner
    from polyhal.hal.core.plugins.entry_points import PluginOrigin


_blocks = threading.local()
"""Stack of the `with` blocks of devices that the thread has entered."""


class Device:
    """An opened compute device. `Device("opencl:1")` and `Device.default()` return the same object every time.

    They return another one after a loss: the tensors of a lost device are gone, and everything on it raises DeviceLostError.
    """

    features: Feature
    """The optional protocols of the contract that the backend implements."""
    backend: ComputeBackend
    foreign: ForeignMemory | None
    """Device memory shared with other libraries, where the backend can."""
    idle_streams: list[tuple[Any, Pool]]
    """Streams of the backend that no `Stream` uses, each with its memory pool."""
    imports: HostImports | None
    """Host memory of others, where the backend can use it."""
    name: str
    origin: PluginOrigin | None
    """Entry point and package of the backend; None for a backend that the program itself opened."""
    plans: PlanCache
    planner: Planner
    pool: Pool
    reading_backend: SupportsAsyncRead | None
    """The backend, where it can read without blocking. Kept because checking its members takes microseconds."""
    stream_backend: SupportsStreams | None
    """The backend, where it has streams. Kept for the same reason."""
    stand_ins: Mapping[DType, DType]
    """The narrower dtype for each 64-bit integer dtype that the device does not store; empty on most devices."""
    uploads: PendingUploads | None
    """Copies to the device in flight, where the backend supports them."""
    _losing_backend: SupportsLossDetection | None
    """The backend, where it can tell that the device is gone. Kept because tensors without a device ask for it."""
    _flushing_backend: SupportsFlush | None
    """The backend, where it supports `flush`. Kept because every replay of a captured step asks for it."""

    def __new__(cls, name: str | Device | None = None, index: int | None = None) -> Device:
        """Open the device called `name`: "opencl", "opencl:1", "numpy", "cpu", "gpu", ...; None means the default.

        `index` is the number after the colon. The page "Naming devices" lists all names. Raises DeviceUnavailableError
        with the reason of every candidate.
        """
        if index is not None:
            name = f"{name}:{index}"
        if isinstance(name, Device):
            return name
        from polyhal.hal.system.discovery.registry import registry

        return registry().open(name)

    @staticmethod
    def default() -> Device:
        """The best device of this machine, or the one that POLYHAL_DEVICE names."""
        from polyhal.hal.system.discovery.registry import registry

        return registry().open(None)

    @classmethod
    def opened(cls, name: str, backend: ComputeBackend, origin: PluginOrigin | None = None) -> Device:
        """Wrap an opened backend; for the registry, which passes the plug-in, and for tests with backends of their own."""
        from polyhal.hal.compile.planning.planner import Planner

        self = object.__new__(cls)
        self.name = name
        self.backend = backend
        self.origin = origin
        self.features = features_of(backend)
        self._flushing_backend = backend if isinstance(backend, SupportsFlush) else None
        self._losing_backend = backend if isinstance(backend, SupportsLossDetection) else None
        self.reading_backend = backend if isinstance(backend, SupportsAsyncRead) else None
        self.stream_backend = backend if isinstance(backend, SupportsStreams) else None
        self.uploads = PendingUploads(backend) if isinstance(backend, SupportsPinnedMemory) else None
        self.imports = HostImports(backend, backend) if isinstance(backend, SupportsMemoryImport) else None
        self.foreign = ForeignMemory(backend, backend) if isinstance(backend, SupportsForeignMemory) else None
        self.stand_ins = dtypes.stand_ins(backend.capabilities.storage)
        self.pool = Pool(backend, name)
        if self.foreign is not None:
            self.pool.reclaim = self.foreign.synchronize
        self.plans = PlanCache()
        self.planner = Planner(self)
        self.idle_streams = []
        process_devices().devices.add(self)
        return self

    def abandon(self, stand_in: Any) -> None:
        """Put `stand_in` in the place of all that works with the driver."""
        self.backend = self.pool = self.planner = stand_in
        self.reading_backend = self.stream_backend = self._flushing_backend = stand_in
        self.uploads = self.imports = self.foreign = None

    @property
    def info(self) -> DeviceInfo:
        """The description of the opened backend, safe to print."""
        return self.backend.info.shown()

    @property
    def type(self) -> DeviceType:
        """The type of hardware that the driver reports."""
        return self.backend.info.type

    @property
    def index(self) -> int | None:
        """The number after the colon of the device's name; None for a name without a number."""
        number = self.name.rpartition(":")[2]
        return int(number) if number.isdigit() else None

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the backend."""
        return self.backend.capabilities

    @property
    def is_lost(self) -> bool:
        """True if a call has found the device gone: its tensors are, too, and `Device(name)` reopens it."""
        return self._losing_backend is not None and self._losing_backend.is_lost()

    def synchronize(self) -> None:
        """Wait for everything enqueued on this device."""
        shared = self.imports or self.foreign
        if shared is None:
            self.backend.synchronize()
        else:
            shared.synchronize()

    def flush(self) -> None:
        """Submit everything enqueued on this device without waiting for it."""
        if self._flushing_backend is not None:
            self._flushing_backend.flush()

    def stream(self) -> Stream:
        """Make a stream, whose work may run concurrently with that of other streams: `with device.stream(): ...`."""
        return Stream(self)

    def record_event(self) -> DeviceEvent:
        """Return an event after everything enqueued so far on the thread's stream. Devices that cannot mark work wait here."""
        return record_event(self)

    def memory_stats(self) -> MemoryStats:
        """Sizes and counts of the device's memory pool, in bytes."""
        return self.pool.stats()

    def empty_cache(self) -> None:
        """Return free blocks of the pool to the device."""
        self.pool.drain()

    def set_memory_limit(self, nbytes: int | None) -> None:
        """Let tensors of this process take at most `nbytes` of the device; None removes the limit.

        Beyond it, free blocks are given back; if that does not suffice, OutOfMemoryError is raised. Memory that is in use
        already stays. Raises ValueError below 0.
        """
        if nbytes is not None and nbytes < 0:
            raise ValueError(message("set_memory_limit", f"got {nbytes}", expected="0 or more bytes", device=self))
        self.pool.limit = nbytes

    def check_dtype(self, dtype: DType, op: str | None = None) -> None:
        """Raise UnsupportedDTypeError unless the device can store tensors of `dtype`."""
        if dtype not in self.backend.capabilities.storage:
            have = ", ".join(sorted(d.name for d in self.backend.capabilities.storage))
            raise UnsupportedDTypeError(
                message(
                    op,
                    f"no {dtype.name} on this device",
                    expected=f"one of {have}",
                    fix="cast to one of them, or choose another device (POLYHAL_DEVICE)",
                    device=self,
                )
            )

    def upload(self, array: np.ndarray, dtype: DType, non_blocking: bool = False) -> tuple[Buffer, Ref]:
        """Copy `array`, which must be of `dtype`'s NumPy type, to a new buffer. Returns the buffer and a reference to it.

        With `non_blocking` nobody may change `array` afterwards, and the call does not wait if the backend supports that.
        Raises UnsupportedDTypeError if the device does not store the dtype, or a number does not fit its stand-in.
        """
        if dtype in self.stand_ins:
            dtype = self.stand_ins[dtype]
            array = narrowed(array, dtype, self)
        buffer, ref = self.reserve(contiguous(dtype, array.shape))
        if array.size:
            begin = time.perf_counter_ns() if UPLOADS else 0
            source = byte_view(np.ascontiguousarray(array))
            try:
                if non_blocking and self.uploads is not None:
                    self.uploads.start(source, buffer.handle)
                else:
                    self.backend.copy_to_device(source, buffer.handle, 0)
            except Exception as error:
                note_backend_failure(error, "copy to device", self)
                raise
            for observer in UPLOADS:
                observer(self, source.nbytes, begin, time.perf_counter_ns())
        return buffer, ref

    def reserve(self, spec: Spec) -> tuple[Buffer, Ref]:
        """Take memory for elements that will be copied there. Returns the buffer and a reference to it.

        Raises OutOfMemoryError, and UnsupportedDTypeError if the device cannot store the dtype.
        """
        self.check_dtype(spec.dtype)
        try:
            buffer = self.pool.take(bucket(spec.nbytes))
        except OutOfMemoryError as error:
            raise out_of_memory_in("copy to device", error) from error
        return buffer, Ref(buffer.handle, spec, 0)

    def download(self, ref: Ref) -> np.ndarray:
        """Copy the elements of `ref` to a new NumPy array. Waits for the device."""
        out = np.empty(ref.shape, ref.dtype.numpy)
        if not out.size:
            return out
        try:
            if ref.is_contiguous:
                self.backend.copy_from_device(ref.handle, ref.offset * ref.dtype.itemsize, byte_view(out))
                return out
            dense = contiguous(ref.dtype, ref.shape)
            buffer = self.pool.take(bucket(dense.nbytes))
            self.backend.copy(ref, Ref(buffer.handle, dense, 0))
            self.backend.copy_from_device(buffer.handle, 0, byte_view(out))
        except Exception as error:
            note_backend_failure(error, "copy from device", self)
            raise
        return out

    def download_async(self, ref: Ref) -> Future[np.ndarray]:
        """Start to copy the elements of `ref` to a new NumPy array, without waiting if the backend supports that.

        The future raises the typed error of work that failed.
        """
        backend = self.reading_backend
        if backend is None or not ref.size:
            return finished(self.download(ref))
        out = np.empty(ref.shape, ref.dtype.numpy)
        if ref.is_contiguous:
            return start_read(backend, ref.handle, ref.offset * ref.dtype.itemsize, out)
        dense = contiguous(ref.dtype, ref.shape)
        buffer = self.pool.take(bucket(dense.nbytes))
        self.backend.copy(ref, Ref(buffer.handle, dense, 0))
        return start_read(backend, buffer.handle, 0, out)

    def __enter__(self) -> Device:
        """Make the device the default of this thread inside a `with` block."""
        block = default_device(self)
        block.__enter__()
        _blocks.entered = [*getattr(_blocks, "entered", ()), block]
        return self

    def __exit__(self, *error: Any) -> None:
        *_blocks.entered, block = _blocks.entered
        block.__exit__(*error)

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Device, (self.name,)


__all__ = ["Device", "Spec"]
