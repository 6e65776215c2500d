"""The executor protocol: interface of the object that runs or records a thread's ops.

Normally a thread has the `EagerExecutor`. `StepRecorder` and `Tracer` build graphs instead; autocast, the profiler and
anomaly detection forward to another executor. An executor that records has a `Recorder` in addition, and one that locates
ops has `TapeHooks`; callers skip them if they are None.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from polyhal.hal.core.execution.user_line import user_line
from polyhal.hal.errors import CaptureError, message

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.collectives.collective import Collective
    from polyhal.hal.collectives.communicator import Communicator
    from polyhal.hal.core.execution.recorder import Recorder
    from polyhal.hal.core.execution.tape_hooks import TapeHooks
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType
    from polyhal.hal.layout import Ref
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs, ParamValues


class Array:
    """A buffer seen through a layout on a device: the operand and result of eager ops. The frontend's Tensor extends it."""

    __slots__ = ("__weakref__", "buffer", "device", "ref", "requires_grad")

    buffer: Buffer
    device: Device
    ref: Ref
    requires_grad: bool

    def __init__(self, device: Device, buffer: Buffer, ref: Ref) -> None:
        self.device = device
        self.buffer = buffer
        self.ref = ref
        self.requires_grad = False


class RandomSource(Protocol):
    """A stream of random words, addressed by seed and offset."""

    def advance(self, count: int) -> tuple[int, int]:
        """Use up `count` 32-bit words. Returns the seed and the offset of the first, in blocks of four words."""
        ...

    def get_state(self) -> dict[str, int]:
        """The state as plain numbers."""
        ...

    def set_state(self, state: Mapping[str, int]) -> None:
        """Set the state to one of `get_state`."""
        ...


class Executor(Protocol):
    """Runs or records the ops of a thread."""

    @property
    def recorder(self) -> Recorder | None:
        """Records state, constants and scalars; None where ops run when they are called."""
        ...

    @property
    def tape_hooks(self) -> TapeHooks | None:
        """Callbacks of the tape; None if nothing needs the location of ops."""
        ...

    @property
    def fuses_later(self) -> bool:
        """True if ops are fused after they were recorded, so that callers do not fuse them."""
        ...

    @property
    def replays_graphs(self) -> bool:
        """True if a recorded graph may run in place of its ops; False where every op has to be seen."""
        ...

    def apply(self, op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None = None) -> Any:
        """Apply `op`. Returns one array, or a tuple if the op declares several outputs.

        `device` places ops without array inputs. Inputs that require gradients put the op on the tape.
        """
        ...

    def apply_into(self, op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[Array, ...]) -> None:
        """Apply `op` with its results written over existing arrays, which may be inputs. Raises ShapeError."""
        ...

    def overwrite(self, target: Array, value: Any) -> None:
        """Replace the elements of `target` by a number, or by those of an array of its shape, cast to its dtype."""
        ...

    def transfer(self, x: Array, device: Device, non_blocking: bool = False) -> Any:
        """Copy `x` to another device, off the tape. `non_blocking`: without waiting for it, where it supports that."""
        ...

    def communicate(
        self, collective: Collective, communicator: Communicator, dtype: DType, sources: tuple[Array, ...]
    ) -> tuple[Any, ...]:
        """Carry out a collective, off the tape. `sources` and results are vectors, one per member that gives or gets one."""
        ...

    def alias(self, x: Array) -> Any:
        """Return another array over the memory of `x`, off the tape."""
        ...

    def read(self, x: Array) -> np.ndarray:
        """Return the elements on the host; waits for the device. Raises CaptureError for values that are only recorded."""
        ...

    def read_async(self, x: Array) -> Future[np.ndarray]:
        """Start to read like `read`, without waiting for the device if it supports that."""
        ...

    def random(self, source: RandomSource, count: int) -> tuple[Any, Any]:
        """Return seed and offset of `count` fresh random words; recording, runtime scalars that each replay draws."""
        ...

    def on_replay(self, action: Callable[[], object], undo: Callable[[], object] | None = None) -> None:
        """Call `action` now; recording, before each replay instead, in the order of these calls.

        `undo` reverses the action after a replay that fails, so that the step can be repeated.
        """
        ...

    def call_module(
        self, module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return `function(*args, **kwargs)`, whose ops belong to `module`."""
        ...


class CheckpointRegion(Protocol):
    """A checkpointed call that a thread is in: it drops the saved tensors of nodes, and repeats random draws when it runs
    again."""

    def add(self, node: Any, inputs: Inputs) -> None:
        """Note a node that was just put on the tape, of an op with these inputs."""
        ...

    def draw(self, take: Callable[[], Any]) -> Any:
        """Return `take()` in the first run, and the same numbers again in later ones."""
        ...


class PartitionTimer(Protocol):
    """Runs the partitions of a recorded step one by one, to time them."""

    def run(self, partitions: Any, graph: Any) -> None:
        """Run all `partitions` of the planned `graph` in order."""
        ...


class WorkerTimer(Protocol):
    """Runs recorded steps, to time the work of each device while all of them work."""

    def run(self, executable: Any) -> None:
        """Do the work of one run of an `Executable`."""
        ...


class _ThreadState(threading.local):
    """Per-thread dispatch state; class attributes are the initial values of a thread."""

    executor: Executor
    grad_enabled: bool = True
    indices_checked: bool = False
    """True if the indices that ops are called with now are known to be in range."""
    counts_from_end: bool = True
    """True if negative indices count from the end; False if the check of indices refuses them, as some ops of PyTorch do."""
    device: Device | str | None = None
    """Where ops without array inputs run if the call names no device; None: the default device."""
    region: CheckpointRegion | None = None
    timer: PartitionTimer | None = None
    worker_timer: WorkerTimer | None = None


thread = _ThreadState()


def set_default_executor(executor: Executor) -> None:
    """Have threads start with `executor`; the eager one installs itself by this."""
    _ThreadState.executor = executor


class StructureVersion:
    """Counts changes of the structure of programs, so that a captured step knows when to check its guards again."""

    __slots__ = ("forks", "modes", "version")

    def __init__(self) -> None:
        self.version = 0
        self.modes = 0
        self.forks = 0
        """Forks in which this process, as a child, has lost devices."""

    def changed(self) -> None:
        """Count a change of a module's parts, an optimizer's groups, a leaf's flag or hooks, or the default device."""
        self.version += 1

    def mode_changed(self) -> None:
        """Count a module's switch to training or to evaluation, or a change of its hooks."""
        self.modes += 1


structure = StructureVersion()


def apply(op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None = None) -> Any:
    """Apply `op` with the thread's executor. Returns one value, or a tuple if the op declares several outputs."""
    return thread.executor.apply(op, inputs, params, device)


def apply_into(op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[Any, ...]) -> None:
    """Apply `op` with its results written over existing arrays, which may be inputs; their versions advance.

    Shapes and dtypes must be those that the op infers. Raises ShapeError.
    """
    thread.executor.apply_into(op, inputs, params, outs)


def runtime_scalar(compute: Callable[[], Any], name: str = "", increment: int = 0) -> Any:
    """Return `compute()`; in a captured step, a number that is computed before each replay.

    The function `compute` returns a bool, int or float, of the same type each time. Arithmetic on the result works, also as
    an operand of ops; in a captured step a comparison raises CaptureError. `name` appears in the graph. `increment` says by
    how much the number grows from run to run if nothing else happens to it, so that a saved step counts on.
    """
    recorder = thread.executor.recorder
    return compute() if recorder is None else recorder.runtime_scalar(compute, name, increment)


def static_bound(value: int, bound: int) -> int:
    """Return `value`, or in a captured step its maximum `bound`, because shapes are equal in every replay."""
    return value if thread.executor.recorder is None else bound


def require_execution(op: str, problem: str, fix: str = "") -> None:
    """Raise CaptureError, with the user's line, if ops are only recorded."""
    if thread.executor.recorder is not None:
        raise CaptureError(message(op, f"{problem}, at {user_line()}", fix=fix))


def on_replay(action: Callable[[], object], undo: Callable[[], object] | None = None) -> None:
    """Call `action` now; in a captured step, before the kernels of each replay instead, in the order of these calls.

    `undo` reverses the action after a replay that fails, so that the step can be repeated.
    """
    thread.executor.on_replay(action, undo)


@contextmanager
def executing(executor: Executor) -> Iterator[None]:
    """Send this thread's ops to `executor` inside the block."""
    previous = thread.executor
    thread.executor = executor
    try:
        yield
    finally:
        thread.executor = previous


@contextmanager
def enabled_grad() -> Iterator[None]:
    """Put ops on the tape inside the block."""
    previous, thread.grad_enabled = thread.grad_enabled, True
    try:
        yield
    finally:
        thread.grad_enabled = previous


@contextmanager
def default_device(device: Device | str | None) -> Iterator[None]:
    """Have ops without array inputs run on `device` inside the block."""
    previous, thread.device = thread.device, device
    try:
        yield
    finally:
        thread.device = previous
