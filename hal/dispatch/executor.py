"""Which executor runs a thread's ops, and the rest of its dispatch state.

Every op call goes to the current thread's executor: normally `eager`, a tracer while a decomposition or a step is recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Ref
    from polyhal.hal.memory.buffer import Buffer
    from polyhal.hal.ops.opdef import OpDef

Executor = Callable[..., Any]


class Array:
    """A buffer seen through a layout on a device: what eager ops take and return. The frontend's Tensor extends it."""

    __slots__ = ("buffer", "device", "ref", "requires_grad")

    buffer: Buffer
    device: Device
    ref: Ref
    requires_grad: bool


class _Thread(threading.local):
    """Per-thread dispatch state; class attributes are what a new thread starts with."""

    executor: Executor
    grad_enabled: bool = True
    device: Any = None
    """Where ops without tensor inputs run when they are not told: the default device if None."""
    capture: Any = None
    """The `Capture` that this thread's ops go to, if any."""
    region: Any = None
    """The checkpointed region that this thread runs, if any: it has a say in what the tape and random numbers do."""
    watch: Any = None
    """The `StepProfile` that runs the parts of captured steps, if any."""


thread = _Thread()


def set_default_executor(executor: Executor) -> None:
    """Have threads start with `executor`; the eager one installs itself by this."""
    _Thread.executor = staticmethod(executor)


class Structure:
    """Counts changes of what programs are made of, so that a captured step knows when to look again."""

    __slots__ = ("modes", "version")

    def __init__(self) -> None:
        self.version = 0
        self.modes = 0

    def changed(self) -> None:
        """Note that a module's parts, an optimizer's groups or a tensor's need of gradients changed."""
        self.version += 1

    def mode_changed(self) -> None:
        """Note that a module was switched to training or to inference."""
        self.modes += 1


structure = Structure()


class _Frontend:
    """What the frontend contributes: how a result is wrapped, how an operand is taken in, how the tape is written."""

    __slots__ = ("convert", "device", "record", "wrap")

    wrap: Callable[[Device, Buffer, Ref], Any]
    convert: Callable[[Any, Device], Any]
    record: Callable[[OpDef, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], None]
    device: Callable[[Any], Device]


frontend = _Frontend()


def apply(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
    """Run or record `op`. Returns one value, or a tuple where the op declares several outputs."""
    return thread.executor(op, inputs, params, device)


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
def capturing(capture: Any) -> Iterator[None]:
    """Send this thread's ops, and what is done in place, to a `hal.capture.Capture` inside the block; None: run them."""
    previous, thread.capture = thread.capture, capture
    try:
        with executing(_Thread.executor if capture is None else capture.executor):
            yield
    finally:
        thread.capture = previous


@contextmanager
def default_device(device: Any) -> Iterator[None]:
    """Have ops without tensor inputs run on `device` inside the block."""
    previous, thread.device = thread.device, device
    try:
        yield
    finally:
        thread.device = previous
