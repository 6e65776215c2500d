"""Devices as users see them: found by name, opened once, each with its pool and its plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.capabilities import Capabilities, DeviceInfo, DeviceType
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.memory.buffer import Buffer
from polyhal.hal.memory.host_bytes import byte_view
from polyhal.hal.memory.pool import MemoryStats, Pool, bucket
from polyhal.hal.memory.streams import Stream
from polyhal.hal.protocol import ComputeBackend, Feature, SupportsFlush, features_of

if TYPE_CHECKING:
    from polyhal.hal.planning.plan import PlanCache
    from polyhal.hal.planning.planner import Planner


class Device:
    """An opened compute device. `Device("opencl:1")` and `Device.default()` return the same object every time."""

    features: Feature
    """The optional protocols of the contract that the backend implements."""
    backend: ComputeBackend
    idle_streams: list[tuple[Any, Pool]]
    """Streams of the backend that no `Stream` uses, each with its memory pool."""
    name: str
    plans: PlanCache
    planner: Planner
    pool: Pool
    _flushing_backend: SupportsFlush | None
    """The backend, where it supports `flush`. Kept because every replay of a captured step asks for it."""

    def __new__(cls, name: str | Device | None = None) -> Device:
        """Open the device called `name`: "opencl", "opencl:1", "numpy", "cpu", "gpu", ...; None means the default.

        Raises DeviceUnavailableError with the reason of every candidate.
        """
        if isinstance(name, Device):
            return name
        from polyhal.hal.discovery.registry import registry

        return registry().open(name)

    @staticmethod
    def default() -> Device:
        """The best device of this machine, or the one that POLYHAL_DEVICE names."""
        from polyhal.hal.discovery.registry import registry

        return registry().open(None)

    @classmethod
    def opened(cls, name: str, backend: ComputeBackend) -> Device:
        """Wrap an opened backend; for the registry, and for tests with backends of their own."""
        from polyhal.hal.planning.plan import PlanCache
        from polyhal.hal.planning.planner import Planner

        self = object.__new__(cls)
        self.name = name
        self.backend = backend
        self.features = features_of(backend)
        self._flushing_backend = backend if isinstance(backend, SupportsFlush) else None
        self.pool = Pool(backend, name)
        self.plans = PlanCache()
        self.planner = Planner(self)
        self.idle_streams = []
        return self

    @property
    def info(self) -> DeviceInfo:
        """The description that the backend gave when it was probed or opened."""
        return self.backend.info

    @property
    def type(self) -> DeviceType:
        """The type of hardware that the driver reports."""
        return self.backend.info.type

    @property
    def capabilities(self) -> Capabilities:
        """What the backend supports."""
        return self.backend.capabilities

    def synchronize(self) -> None:
        """Wait for everything enqueued on this device."""
        self.backend.synchronize()

    def flush(self) -> None:
        """Submit everything enqueued on this device without waiting for it."""
        if self._flushing_backend is not None:
            self._flushing_backend.flush()

    def stream(self) -> Stream:
        """Make a stream, whose work may run concurrently with that of other streams: `with device.stream(): ...`."""
        return Stream(self)

    def memory_stats(self) -> MemoryStats:
        """Sizes and counts of the device's memory pool, in bytes."""
        return self.pool.stats()

    def empty_cache(self) -> None:
        """Return free blocks of the pool to the device."""
        self.pool.drain()

    def check_dtype(self, dtype: DType, op: str | None = None) -> None:
        """Raise UnsupportedDTypeError unless the device can store tensors of `dtype`."""
        if dtype not in self.backend.capabilities.storage:
            have = ", ".join(sorted(d.name for d in self.backend.capabilities.storage))
            raise UnsupportedDTypeError(
                message(
                    op,
                    f"no {dtype.name} on this device",
                    expected=f"one of {have}",
                    fix="cast to one of them",
                    device=self,
                )
            )

    def upload(self, array: np.ndarray, dtype: DType) -> tuple[Buffer, Ref]:
        """Copy `array`, which must be of `dtype`'s NumPy type, to a new buffer. Returns the buffer and a reference to it."""
        self.check_dtype(dtype)
        spec = contiguous(dtype, array.shape)
        buffer = self.pool.take(bucket(spec.nbytes))
        if array.size:
            self.backend.copy_to_device(byte_view(np.ascontiguousarray(array)), buffer.handle, 0)
        return buffer, Ref(buffer.handle, spec, 0)

    def download(self, ref: Ref) -> np.ndarray:
        """Copy the elements of `ref` to a new NumPy array. Waits for the device."""
        out = np.empty(ref.shape, ref.dtype.numpy)
        if not out.size:
            return out
        if ref.is_contiguous:
            self.backend.copy_from_device(ref.handle, ref.offset * ref.dtype.itemsize, byte_view(out))
            return out
        dense = contiguous(ref.dtype, ref.shape)
        buffer = self.pool.take(bucket(dense.nbytes))
        self.backend.copy(ref, Ref(buffer.handle, dense, 0))
        self.backend.copy_from_device(buffer.handle, 0, byte_view(out))
        return out

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Device, (self.name,)


__all__ = ["Device", "Spec"]
