"""The contract between a device and everything above it: the required members, then the optional protocols.

A backend is any object with the members of `ComputeBackend`. The framework allocates every output and temporary, so a
backend never decides where results go. Members may be called from any thread and from several threads at once; the work
of one thread runs in the order in which that thread enqueued it. All arguments are passed by position.

`copy` and `fill` accept references with any strides. All other core methods receive contiguous references of equal shape
and of one dtype (bool for conditions and comparison results). No reference is ever empty.

Every backend stores and computes in bool, int32 and float32, which suffice for training. No member receives a dtype outside
`Capabilities.storage`, and no arithmetic member one outside `Capabilities.compute`. Without int64, integers of the framework
are int32 on the device, and arrays of the host are converted if their numbers fit. Random numbers need only int32.

Optional protocols are looked up once, when a device is opened. Each says who calls it and when.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.command_buffers import BindingSlot as BindingSlot
from polyhal.hal.command_buffers import CommandBuffer as CommandBuffer
from polyhal.hal.command_buffers import RecordedLaunch as RecordedLaunch
from polyhal.hal.command_buffers import SupportsCommandBuffers
from polyhal.hal.graphs import GraphNode as GraphNode
from polyhal.hal.graphs import GraphProgram as GraphProgram
from polyhal.hal.graphs import GraphValue as GraphValue
from polyhal.hal.graphs import SupportsGraphs
from polyhal.hal.layout import Ref, ScalarSpec, Spec
from polyhal.hal.peer_memory import SupportsMemoryImport, SupportsPeerCopy

API_VERSION = 2
"""Raised whenever a backend written for the version before would no longer work."""

Handle = Any
"""A backend's own object for an allocation; the framework only passes it back."""

Number = bool | int | float

REQUIRED_UNARY: frozenset[str] = frozenset({"exp", "log", "sqrt", "sin", "floor", "neg", "not"})
"""`not` is logical on bool and bitwise on integers. A backend may offer further functions, activations among them, that
`member_names` lists; the framework composes the others from those that the backend has."""
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
        """Bytes that can still be allocated, as far as the device reports it."""

    def allocate(self, nbytes: int) -> Handle:
        """Allocate at least `nbytes` > 0 of uninitialised device memory. Raises OutOfMemoryError."""

    def deallocate(self, handle: Handle) -> None:
        """Release an allocation. Work already enqueued on it must still complete correctly.

        Raises BackendError if the handle was released before and the backend can tell.
        """

    def copy_to_device(self, src: memoryview, dst: Handle, offset: int) -> None:
        """Copy the bytes of `src` to `dst`, starting at byte `offset`. The caller may change `src` after the call returns."""

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        """Fill `dst` with bytes of `src`, starting at byte `offset`. Blocks until all work enqueued before is done."""

    def synchronize(self) -> None:
        """Submit all work and wait for it. Errors of asynchronous work surface here."""

    def fill(self, value: Number, out: Ref) -> None:
        """Set every element of `out` to `value`; an integer wraps to the range of its dtype. `out` may have any strides."""

    def copy(self, src: Ref, out: Ref) -> None:
        """Copy with a cast between references of equal shape and any strides; a stride of 0 repeats an element.

        Casts follow C: floats truncate towards zero, integers wrap, anything non-zero is True. The backend decides where C
        leaves the result undefined: the integer value of a NaN or of an out-of-range float.
        """

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        """Compute `out = op(x)` elementwise."""

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        """Compute `out = a op b` elementwise."""

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        """Compute `out = a if cond else b` elementwise; `cond` is bool."""

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        """Reduce the last axis of `x`, whose length is at least 1; `out` has the shape of the remaining axes."""

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        """Compute `out[i] = a[i] @ b[i]` for shapes (B, M, K), (B, K, N), (B, M, N), accumulating in at least float32."""

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        """Compute `out[i, :] = x[index[i], :]` for `index` (I,), x (R, W), out (I, W). Indices out of range give 0.

        `index` is int32 or, if it is stored, int64; `x` and `out` have any dtype that is stored.
        """

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        """Compute `out[index[i], :] += src[i, :]` for index (I,), src (I, W), out (R, W). Skips indices out of range."""


@runtime_checkable
class Launch(Protocol):
    """A kernel prepared for fixed specs. Called with the inputs, then the outputs, then the workspace handles."""

    @property
    def name(self) -> str:
        """The name that `explain` and the profiler show."""

    @property
    def workspace(self) -> tuple[int, ...]:
        """Sizes in bytes of the temporaries that the framework must pass as additional handles."""

    def __call__(self, *args: Any) -> None:
        """Enqueue the kernel. `ScalarSpec` inputs arrive as Python numbers, all others as `Ref`, workspace as `Handle`."""


@dataclass(frozen=True, slots=True)
class SimpleLaunch:
    """A `Launch` that calls a plain function."""

    name: str
    run: Callable[..., None]
    workspace: tuple[int, ...] = ()

    def __call__(self, *args: Any) -> None:
        self.run(*args)


@dataclass(frozen=True, slots=True)
class Declined:
    """The answer of `lower` if there is no native kernel. `explain` shows the reason."""

    reason: str


InputSpec = Spec | ScalarSpec


@runtime_checkable
class SupportsLowering(Protocol):
    """Native kernels for whole ops.

    The planner calls `lower` once for each new combination of op, specs and parameters, and keeps the launch. Graph passes
    call it before they fuse ops, so that a fused op always has a kernel.
    """

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """Return a launch for these specs, or the reason why there is none.

        An absent optional input is None, here and in the call of the launch. `params` holds the op's parameters, and those
        settings of the process that both `Capabilities.settings` and the op name. Outputs are contiguous and do not overlap
        inputs, with one exception: an output of an elementwise op or an optimizer step may be exactly an input of the same
        spec.
        """


@runtime_checkable
class SupportsFlush(Protocol):
    """Submission of work that the backend has only recorded so far.

    The framework calls `flush` at the end of a captured step and of an optimizer step. The device then works while the host
    prepares the next batch, instead of idling until the host waits for a result.
    """

    def flush(self) -> None:
        """Submit everything enqueued, without waiting for it."""


@runtime_checkable
class SupportsPinnedMemory(Protocol):
    """Page-locked host memory for fast asynchronous transfers.

    The data loader calls both members: it gathers each batch in pinned memory and copies it while the device computes, on a
    stream of its own if there are streams. With streams and unified memory it copies from ordinary memory instead.
    """

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Allocate writable page-locked host memory. It is released with the last reference to the view."""

    def copy_to_device_async(self, src: memoryview, dst: Handle, offset: int) -> Event:
        """Copy like `copy_to_device`, but without staging: `src` must stay unchanged until the event is complete."""


@runtime_checkable
class Event(Protocol):
    """A point in a device's work."""

    def wait(self) -> None:
        """Block until all work before the event is done."""

    def is_complete(self) -> bool:
        """Return whether all work before the event is done, without blocking. Errors surface in `wait` and `synchronize`."""


@runtime_checkable
class CompletionEvent(Event, Protocol):
    """An event that reports its completion."""

    def add_callback(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call `callback` once when the event is complete, with the error of failed work or None; at once if it is complete.

        It runs on a thread of the backend, or on the caller's if the event is complete: it must not block nor use the device.
        """


@runtime_checkable
class SupportsAsyncRead(Protocol):
    """Copies to the host that do not block. `Tensor.numpy_async` and `Device.record_event` use them."""

    def copy_from_device_async(self, src: Handle, offset: int, dst: memoryview) -> CompletionEvent:
        """Start to fill `dst` with bytes of `src`, starting at byte `offset`, after all work enqueued before.

        Work enqueued later does not change the bytes read, and `src` may be released meanwhile. `dst` must stay alive and
        untouched until the event is complete. The copy and all work before it are submitted, so that the event becomes
        complete without another call.
        """


TRANSFER = "copy to device"
"""The name under which `SupportsProfiling` lists a copy by `copy_to_device_async`."""


@runtime_checkable
class SupportsProfiling(Protocol):
    """Device timestamps around launches. Called by the profilers, the tuner and the benchmarks."""

    def start_profiling(self) -> None:
        """Record timestamps for every later launch. This may make launches slower."""

    def stop_profiling(self) -> Sequence[tuple[str, int, int]]:
        """Return (kernel name, start, end) of every launch since `start_profiling`, in nanoseconds of the device's clock.

        Copies that run beside launches may be listed too, named `TRANSFER`.
        """


@runtime_checkable
class SupportsStreams(Protocol):
    """Queues whose work may overlap. `Device.stream` and the data loader use them.

    Each thread enqueues to the stream that it has selected, by default the device's own. `synchronize` waits for all
    streams.
    """

    def open_stream(self) -> Any:
        """Return a new stream, which lives as long as the device is open."""

    def switch_stream(self, stream: Any) -> Any:
        """Select the stream of the calling thread, None for the device's own. Return the previous selection."""

    def mark(self) -> Event:
        """Return an event after everything enqueued so far on the thread's stream. Submits without waiting."""

    def wait_for(self, event: Event) -> None:
        """Make later work on the thread's stream wait for `event`. Does not block the host."""


@dataclass(frozen=True, slots=True)
class UserKernel:
    """A kernel of the user's program, in every language that its author wrote it in."""

    name: str
    sources: Mapping[str, Any]
    """By language: the text of a kernel for `opencl`, `wgsl` and others; a function of arrays for `numpy`."""
    inputs: tuple[str, ...]
    """The names of the inputs, which are also those of the kernel's parameters."""
    outputs: tuple[str, ...]


@runtime_checkable
class SupportsUserKernels(Protocol):
    """Kernels that users write in the device's own language.

    The planner calls `compile_kernel` once for each new combination of kernel, specs and parameters, and keeps the launch.
    """

    def compile_kernel(
        self,
        kernel: UserKernel,
        inputs: tuple[InputSpec | None, ...],
        outputs: tuple[Spec, ...],
        params: Mapping[str, Any],
        grid: tuple[int, ...],
        group: tuple[int, ...],
    ) -> Launch | Declined:
        """Return a launch over at least `grid` work-items per axis, or the reason why the kernel does not run here.

        All tensors are contiguous. The kernel sees each from its first element on. `params` are constants of the program.
        Raises KernelBuildError with the source line, and UnsupportedDTypeError for a tensor that the kernel does not take.
        """


@runtime_checkable
class SupportsLossDetection(Protocol):
    """Devices that can be gone while the program runs: unplugged, reset by a watchdog, or with a driver that crashed.

    The registry asks when a device is opened by name or as the default, and opens a lost one anew by another `create`.
    """

    def is_lost(self) -> bool:
        """Return whether a call has found the device gone; it never comes back. All later calls raise DeviceLostError."""


class Feature(enum.Flag):
    """The optional protocols that a backend implements."""

    NONE = 0
    LOWERING = enum.auto()
    FLUSH = enum.auto()
    PINNED_MEMORY = enum.auto()
    PROFILING = enum.auto()
    COMMAND_BUFFERS = enum.auto()
    STREAMS = enum.auto()
    USER_KERNELS = enum.auto()
    ASYNC_READ = enum.auto()
    LOSS_DETECTION = enum.auto()
    PEER_COPY = enum.auto()
    MEMORY_IMPORT = enum.auto()
    GRAPHS = enum.auto()


PROTOCOLS: dict[Feature, type] = {
    Feature.LOWERING: SupportsLowering,
    Feature.FLUSH: SupportsFlush,
    Feature.PINNED_MEMORY: SupportsPinnedMemory,
    Feature.PROFILING: SupportsProfiling,
    Feature.COMMAND_BUFFERS: SupportsCommandBuffers,
    Feature.STREAMS: SupportsStreams,
    Feature.USER_KERNELS: SupportsUserKernels,
    Feature.ASYNC_READ: SupportsAsyncRead,
    Feature.LOSS_DETECTION: SupportsLossDetection,
    Feature.PEER_COPY: SupportsPeerCopy,
    Feature.MEMORY_IMPORT: SupportsMemoryImport,
    Feature.GRAPHS: SupportsGraphs,
}


def features_of(backend: ComputeBackend) -> Feature:
    """Return the optional protocols that `backend` implements. Takes tens of microseconds: call once per device."""
    features = Feature.NONE
    for feature, protocol in PROTOCOLS.items():
        if isinstance(backend, protocol):
            features |= feature
    return features
