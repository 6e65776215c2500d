"""The contract between a device and everything above it.

A backend is any object with the members of `ComputeBackend`. The framework allocates every output and temporary, so
a backend never decides where results go. Members may be called from any thread, and from several at once; what one thread
enqueues runs in the order of its calls. Except for `copy` and `fill`, whose references may have any strides, core
methods receive contiguous references of equal shape and of one dtype (booleans for conditions and comparison
results). Sizes of zero never reach a backend.

Optional abilities are the small protocols further down. They are looked up once, when a device is opened.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.layout import Ref, ScalarSpec, Spec

API_VERSION = 1

Handle = Any
"""A backend's own name for a piece of device memory; the framework only passes it back."""

Number = bool | int | float

REQUIRED_UNARY: frozenset[str] = frozenset({"exp", "log", "sqrt", "sin", "floor", "neg", "not"})
"""`not` is logical on bool and bitwise on integers."""
REQUIRED_BINARY: frozenset[str] = frozenset(
    {"add", "sub", "mul", "div", "max", "lt", "eq", "and", "or", "xor", "shl", "shr"}
)
"""`div` is IEEE division on floats and truncates on integers; `max` propagates NaN; `lt` and `eq` write bool;
`and`, `or`, `xor` are logical on bool and bitwise on integers; `shr` is arithmetic on signed integers."""
REQUIRED_REDUCE: frozenset[str] = frozenset({"sum", "max", "prod"})
"""Over the last axis. Floats accumulate in at least float32; `max` propagates NaN."""


class ComputeBackend(Protocol):
    """One opened device. Every member is required."""

    info: DeviceInfo
    capabilities: Capabilities

    def memory_available(self) -> int:
        """Bytes that can still be allocated, as far as the device tells."""

    def allocate(self, nbytes: int) -> Handle:
        """Uninitialised device memory of at least `nbytes` > 0. Raises OutOfMemoryError."""

    def deallocate(self, handle: Handle) -> None:
        """Give memory back. Work already enqueued on it must still complete correctly."""

    def copy_to_device(self, src: memoryview, dst: Handle, offset: int) -> None:
        """Copy the bytes of `src` to `dst` from byte `offset` on; `src` may change as soon as this returns."""

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        """Fill `dst` from byte `offset` of `src` on, after all work enqueued before. Blocks."""

    def synchronize(self) -> None:
        """Submit and wait for everything enqueued. Errors of asynchronous work surface here."""

    def fill(self, value: Number, out: Ref) -> None:
        """Set every element of `out`, which may have any strides."""

    def copy(self, src: Ref, out: Ref) -> None:
        """Copy equal shapes of any strides (0 repeats an element) with a cast.

        Casts follow C: floats truncate towards zero, integers wrap, anything non-zero is True. What C leaves open, a NaN or
        an out-of-range float as an integer, is the backend's choice.
        """

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        """`out = op(x)`, elementwise."""

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        """`out = a op b`, elementwise."""

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        """`out = a if cond else b`, elementwise; `cond` is bool."""

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        """Reduce the last axis of `x` (length >= 1); `out` has the shape of the other axes."""

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        """`out[i] = a[i] @ b[i]` for shapes (B, M, K), (B, K, N), (B, M, N); accumulates in at least float32."""

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        """`out[i, :] = x[index[i], :]` for int32 or int64 `index` (I,), x (R, W), out (I, W). Indices out of range give 0."""

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        """`out[index[i], :] += src[i, :]` for index (I,), src (I, W), out (R, W). Indices out of range are skipped."""


Arg = Ref | Number


@runtime_checkable
class Launch(Protocol):
    """A kernel made ready for fixed specs. Called with inputs, then outputs, then workspace handles, in order."""

    @property
    def name(self) -> str:
        """What `explain` and the profiler call it."""

    @property
    def workspace(self) -> tuple[int, ...]:
        """Bytes of each temporary that the framework must provide as a further handle."""

    def __call__(self, *args: Any) -> None:
        """Enqueue. `ScalarSpec` inputs arrive as Python numbers, all others as `Ref`, workspace as `Handle`."""


@dataclass(frozen=True, slots=True)
class SimpleLaunch:
    """A `Launch` made of a plain function."""

    name: str
    run: Callable[..., None]
    workspace: tuple[int, ...] = ()

    def __call__(self, *args: Any) -> None:
        self.run(*args)


@dataclass(frozen=True, slots=True)
class Declined:
    """The answer of `lower` when there is no native kernel; the reason is shown by `explain`."""

    reason: str


InputSpec = Spec | ScalarSpec


@runtime_checkable
class Lowering(Protocol):
    """Native kernels for whole ops."""

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """A launch for these specs, or why there is none. Absent optional inputs are None here and at the launch.

        `params` are the op's, and the settings of the process that the capabilities list and the op follows.
        Outputs are contiguous and do not overlap inputs, except that an output may be exactly an
        input of the same spec for elementwise ops and optimizer steps.
        """


@runtime_checkable
class Flush(Protocol):
    """Work may be recorded first and submitted later."""

    def flush(self) -> None:
        """Submit what was recorded, without waiting."""


@runtime_checkable
class PinnedMemory(Protocol):
    """Page-locked host memory for fast asynchronous transfers."""

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Writable page-locked host memory, freed with the last reference to it."""

    def copy_to_device_async(self, src: memoryview, dst: Handle, offset: int) -> Event:
        """Like `copy_to_device`, but `src` must stay unchanged until the event is complete."""


@runtime_checkable
class HostMapping(Protocol):
    """Host access to device memory without a copy."""

    def map(self, handle: Handle, offset: int, nbytes: int) -> memoryview:
        """The bytes of a buffer as host memory, after all work enqueued before, until the view is released."""


@runtime_checkable
class Event(Protocol):
    """A point in a device's work."""

    def wait(self) -> None:
        """Block until everything before the event is done."""

    def is_complete(self) -> bool:
        """Whether that is so already; does not block. Errors of the work surface in `wait` and `synchronize`."""


TRANSFER = "copy to device"
"""What `Profiling` calls a copy of `copy_to_device_async`."""


@runtime_checkable
class Profiling(Protocol):
    """Device timestamps around launches."""

    def start_profiling(self) -> None:
        """Time every launch from now on, which may make launches slower."""

    def stop_profiling(self) -> Sequence[tuple[str, int, int]]:
        """(kernel name, start, end) of every launch since `start_profiling`, in nanoseconds of the device's clock.

        Copies that run beside launches may be listed too, as `TRANSFER`.
        """


class Movable:
    """Stands in a `Ref` for memory that is known when a recording is replayed: arguments and results of a step.

    The reference's offset then counts from `offset`, in elements.
    """

    __slots__ = ("handle", "offset")

    def __init__(self) -> None:
        self.handle: Handle = None
        self.offset = 0


class RecordedLaunch(NamedTuple):
    """One launch of a recording: the position of the call that it comes from, and its kernel's name."""

    call: int
    kernel: str


class Recorded(Protocol):
    """Launches in a device's own form, ready to be submitted again and again."""

    @property
    def launches(self) -> Sequence[RecordedLaunch]:
        """What a replay launches, in the order in which `Profiling` lists it."""

    def replay(self, moved: Collection[Movable]) -> None:
        """Submit the launches once, with today's values of live numbers; `moved` lists what changed place since the last."""


@runtime_checkable
class Recording(Protocol):
    """Launches may be kept instead of submitted."""

    def record(self, calls: Sequence[Callable[[], None]]) -> Recorded:
        """Keep what `calls` launch, in order, without submitting it.

        They call launches, `copy` and `fill`, with `Movable` in place of handles and `Live` numbers in place of numbers that
        change.
        """


@runtime_checkable
class PeerCopy(Protocol):
    """Direct copies between two devices of this backend."""

    def copy_to_peer(
        self, src: Handle, src_offset: int, peer: ComputeBackend, dst: Handle, dst_offset: int, nbytes: int
    ) -> None:
        """Copy bytes to a buffer of `peer`, after all work enqueued before on either device; later work of both sees it."""


@runtime_checkable
class Streams(Protocol):
    """Sequences of work that may run at once. What one thread enqueues goes to the stream that it has chosen.

    Without a choice that is the device's own stream. `synchronize` waits for all of them.
    """

    def open_stream(self) -> Any:
        """A new stream, for as long as the device is open."""

    def switch_stream(self, stream: Any) -> Any:
        """Choose for the calling thread; None is the device's own stream. Returns the choice before."""

    def mark(self) -> Event:
        """A point in the thread's stream, after all that it was given so far. Submits, but does not wait."""

    def wait_for(self, event: Event) -> None:
        """Let what the thread enqueues next on its stream begin after `event`. Does not block."""


class Ability(enum.Flag):
    """Which optional protocols a backend implements."""

    NONE = 0
    LOWERING = enum.auto()
    FLUSH = enum.auto()
    PINNED_MEMORY = enum.auto()
    HOST_MAPPING = enum.auto()
    PROFILING = enum.auto()
    PEER_COPY = enum.auto()
    RECORDING = enum.auto()
    STREAMS = enum.auto()


PROTOCOLS: dict[Ability, type] = {
    Ability.LOWERING: Lowering,
    Ability.FLUSH: Flush,
    Ability.PINNED_MEMORY: PinnedMemory,
    Ability.HOST_MAPPING: HostMapping,
    Ability.PROFILING: Profiling,
    Ability.PEER_COPY: PeerCopy,
    Ability.RECORDING: Recording,
    Ability.STREAMS: Streams,
}


def abilities(backend: ComputeBackend) -> Ability:
    """The optional protocols that `backend` implements. Costs tens of microseconds: call once per device."""
    found = Ability.NONE
    for bit, protocol in PROTOCOLS.items():
        if isinstance(backend, protocol):
            found |= bit
    return found
