"""The state of the emulated driver: devices with their contexts, handles, and the contexts that are current on threads."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from emulated_memory import AddressSpace, Pool
from emulated_statuses import INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, Refused

from polyhal.backends.common.cuda_driver import NULL, ffi

FACTS = {
    1: 1024,  # threads of a block, and below on each axis
    2: 1024,
    3: 1024,
    4: 64,
    5: (1 << 31) - 1,  # blocks of a grid on each axis
    6: 65535,
    7: 65535,
    8: 48 << 10,  # bytes of shared memory of a block, and with opt-in, and of a processor
    97: 96 << 10,
    81: 128 << 10,
    10: 32,  # threads of a warp, and of a processor
    39: 2048,
    16: 4,  # processors
    18: 0,  # integrated
    41: 1,  # one address space
    75: 5,  # compute capability
    76: 0,
    102: 1,  # virtual memory, and its file descriptors
    103: 1,
    115: 1,  # memory pools
}
"""Attributes of a device by their number (`CUdevice_attribute`)."""

_DEFAULT_STREAMS = (1, 2)
"""CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, which is the same stream here: emulated programs have one thread."""


class Handles:
    """Objects of the driver by their handles, which are unique among all kinds."""

    def __init__(self) -> None:
        self._objects: dict[int, tuple[str, Any]] = {}
        self._numbers = itertools.count(0x1000, 16)

    def new(self, kind: str, value: Any) -> Any:
        """Return a handle of the C type `kind`."""
        number = next(self._numbers)
        self._objects[number] = kind, value
        return ffi.cast(kind, number)

    def get(self, kind: str, handle: Any, status: int = INVALID_HANDLE) -> Any:
        """Return the object of a handle. Raises Refused with `status` for an unknown one."""
        found = self._objects.get(number_of(handle))
        if found is None or found[0] != kind:
            raise Refused(status, f"{handle} is not a live {kind}")
        return found[1]

    def drop(self, kind: str, handle: Any) -> Any:
        """Remove a handle and return its object. Raises Refused for an unknown one."""
        value = self.get(kind, handle)
        del self._objects[number_of(handle)]
        return value

    def live(self, kind: str) -> list[Any]:
        """Return all objects of a kind."""
        return [value for found, value in self._objects.values() if found == kind]


def number_of(handle: Any) -> int:
    """Return a handle as a number."""
    return int(ffi.cast("intptr_t", handle))


@dataclass(eq=False)
class Operation:
    """Work of a stream, which runs after all `after`."""

    stream: EmulatedStream
    run: Callable[[], None] | None
    after: tuple[Operation, ...]
    done: bool = False
    end: int = 0
    """Time of the end in nanoseconds."""


@dataclass(eq=False)
class EmulatedStream:
    """A queue of operations. They run when something waits for them, or immediately in a machine that is not lazy."""

    context: EmulatedContext
    blocking: bool
    """True if the stream waits for the default stream, and the default stream for it."""
    pending: deque[Operation] = field(default_factory=deque)
    last: Operation | None = None
    busy: bool = False
    """True while an operation runs."""

    def add(self, run: Callable[[], None] | None, after: Iterable[Operation] = ()) -> Operation:
        """Append an operation."""
        operation = self.last = Operation(self, run, (*after, *self.context.ordered_before(self)))
        self.pending.append(operation)
        if not self.context.machine.lazy:
            self.finish()
        return operation

    def step(self) -> None:
        """Run the next operation and all that it waits for."""
        operation = self.pending.popleft()
        for other in operation.after:
            other.stream.finish(other)
        if operation.run is not None and not self.context.lost:
            self.busy = True
            try:
                operation.run()
            except Refused as problem:
                self.context.lose(problem.status, str(problem))
            finally:
                self.busy = False
        operation.done, operation.end = True, time.perf_counter_ns()

    def is_ready(self, last: Operation | None = None) -> bool:
        """Return whether no operation up to and including `last`, by default the next, waits for one that is running."""
        if self.busy:
            return False
        for operation in self.pending:
            if not all(other.done or other.stream.is_ready(other) for other in operation.after):
                return False
            if last is None or operation is last:
                break
        return True

    def finish(self, last: Operation | None = None) -> None:
        """Run all operations up to and including `last`, by default all."""
        while self.pending and not (last is not None and last.done):
            self.step()


@dataclass(eq=False)
class EmulatedContext:
    """The primary context of a device."""

    machine: Machine
    device: EmulatedDevice
    handle: Any = None
    retained: int = 0
    lost: int = 0
    """Status of all calls after the device was lost; 0 while it works."""
    streams: list[EmulatedStream] = field(default_factory=list)
    peers: set[EmulatedContext] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.default = self.open(blocking=True)

    def open(self, *, blocking: bool) -> EmulatedStream:
        """Return a new stream."""
        stream = EmulatedStream(self, blocking)
        self.streams.append(stream)
        return stream

    def ordered_before(self, stream: EmulatedStream) -> list[Operation]:
        """Return the operations of other streams before which a new one of this stream must not run."""
        if not stream.blocking or not self.streams:
            return []
        others = [s for s in self.streams if s.blocking] if stream is self.default else [self.default]
        return [s.last for s in others if s is not stream and s.last is not None and not s.last.done]

    def finish(self) -> None:
        """Run all operations of all streams."""
        for stream in self.streams:
            stream.finish()
        self.device.pool.synchronized()

    def lose(self, status: int, text: str) -> None:
        """Make all later calls fail."""
        self.lost = self.lost or status
        self.machine.violations.append(text)


@dataclass(eq=False)
class EmulatedDevice:
    """A GPU. `facts` are its attributes."""

    ordinal: int
    name: str
    address: str
    pool: Pool
    facts: dict[int, int]
    context: EmulatedContext = field(init=False)
    pool_handle: Any = None


class Machine:
    """Devices and everything that the driver has made for its caller."""

    def __init__(self, devices: int, capacity: int, *, lazy: bool, peers: bool) -> None:
        self.lazy = lazy
        self.peers = peers
        self.handles = Handles()
        self.memory = AddressSpace()
        self.violations = self.memory.violations
        self.devices: list[EmulatedDevice] = []
        for i in range(devices):
            facts = FACTS | {33: i + 1, 34: 0, 50: 0}
            device = EmulatedDevice(i, f"Emulated GPU {i}", f"0000:{i + 1:02X}:00.0", Pool(capacity), facts)
            device.context = EmulatedContext(self, device)
            device.context.handle = self.handles.new("CUcontext", device.context)
            device.pool_handle = self.handles.new("CUmemoryPool", device)
            self.devices.append(device)
        self._thread = threading.local()

    @property
    def stack(self) -> list[EmulatedContext]:
        """Contexts of the calling thread; the last one is current."""
        if not hasattr(self._thread, "stack"):
            self._thread.stack = []
        return self._thread.stack  # type: ignore[no-any-return]

    def current(self) -> EmulatedContext:
        """Return the current context. Raises Refused without one, and once its device is lost."""
        if not self.stack:
            raise Refused(INVALID_CONTEXT, "no context is current on this thread")
        context = self.stack[-1]
        if not context.retained:
            raise Refused(INVALID_CONTEXT, f"the context of {context.device.name} is not retained")
        if context.lost:
            raise Refused(context.lost, f"{context.device.name} was lost")
        return context

    def device(self, ordinal: int) -> EmulatedDevice:
        """Return a device. Raises Refused for an unknown number."""
        if not 0 <= ordinal < len(self.devices):
            raise Refused(INVALID_DEVICE, f"there is no device {ordinal}")
        return self.devices[ordinal]

    def context(self, handle: Any) -> EmulatedContext:
        """Return the context of a handle. Raises Refused for an unknown one."""
        found: EmulatedContext = self.handles.get("CUcontext", handle, INVALID_CONTEXT)
        return found

    def advance(self) -> bool:
        """Run an operation of any stream, while a kernel may be waiting for other devices. Return whether there was one."""
        for device in self.devices:
            for stream in device.context.streams:
                if stream.pending and stream.is_ready():
                    stream.step()
                    return True
        return False

    def stream(self, handle: Any) -> EmulatedStream:
        """Return the stream of a handle, which must belong to the current context."""
        if handle == NULL or number_of(handle) in _DEFAULT_STREAMS:
            return self.current().default
        stream: EmulatedStream = self.handles.get("CUstream", handle)
        if stream.context is not self.current():
            raise Refused(INVALID_HANDLE, f"the stream belongs to {stream.context.device.name}, which is not current")
        return stream
