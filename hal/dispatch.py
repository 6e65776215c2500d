"""The eager hot path: from an op call to a launch, with one dictionary lookup in between.

Every op call goes to the current thread's executor: normally `eager`, a tracer while a decomposition or a step is
recorded. Whatever is costly (promotion, shape rules, choosing and building kernels) happens when a plan is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import DeviceMismatchError, PolyhalError, ShapeError, UnsupportedDTypeError, message
from polyhal.hal.layout import Ref, ScalarSpec, Spec
from polyhal.hal.protocol import InputSpec
from polyhal.hal.settings import settings

if TYPE_CHECKING:
    from polyhal.hal.buffer import Buffer
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.plan import Plan

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
        with executing(eager if capture is None else capture.executor):
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


_NUMBERS = (float, int, bool)
SEPARATE, OVERLAPPING = -1, -2


def eager(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
    """Run `op` now on the device of its inputs (or on `device`, for ops that create) and write the tape if needed."""
    key: list[Any] = [op, params, settings.key]
    track = False
    for x in inputs:
        kind = type(x)
        if kind in _NUMBERS or x is None:
            key.append(kind)
            continue
        try:
            key.append(x.ref.spec)
        except AttributeError:
            return _convert(op, inputs, params, device)
        if device is None:
            device = x.device
        elif x.device is not device:
            raise _mismatch(op, inputs)
        if x.requires_grad:
            track = True
    try:
        plan = device.plans.get(tuple(key))
    except (TypeError, AttributeError):  # a list among the parameters; no device, or its name
        plan = None
    if plan is None:
        if not hasattr(device, "plans"):
            return _convert(op, inputs, params, device)
        params = freeze(params)
        plan = make_plan(device, op, inputs, params)
    delta = plan.view
    if delta is not None:
        x = inputs[0]
        ref = x.ref
        outs: Any = frontend.wrap(device, x.buffer, Ref(ref.handle, plan.spec, ref.offset + delta))
        if track and thread.grad_enabled:
            frontend.record(op, inputs, params, (outs,))
        return outs
    single = plan.single
    if single is not None:
        buffer = device.pool.take(plan.bucket)
        out = Ref(buffer.handle, plan.spec, 0)
        if len(inputs) == 2:
            a, b = inputs
            single(a if type(a) in _NUMBERS else a.ref, b if type(b) in _NUMBERS else b.ref, out)
        elif len(inputs) == 1:
            single(inputs[0].ref, out)
        else:
            single(*[arg(x) for x in inputs], out)
        outs = frontend.wrap(device, buffer, out)
        if track and thread.grad_enabled:
            frontend.record(op, inputs, params, (outs,))
        return outs
    buffers = [device.pool.take(size) for size in plan.buckets]
    refs = [Ref(b.handle, s, 0) for b, s in zip(buffers, plan.outputs, strict=True)]
    plan.run([arg(x) for x in inputs], refs)
    results = tuple(frontend.wrap(device, b, r) for b, r in zip(buffers, refs, strict=True))
    if track and thread.grad_enabled:
        frontend.record(op, inputs, params, results)
    return results if plan.tuple_result else results[0]


_Thread.executor = staticmethod(eager)


def arg(x: Any) -> Any:
    """The form in which an input reaches a launch."""
    return x if x is None or type(x) in _NUMBERS else x.ref


def apply_into(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
    """Run `op` with its results written over existing arrays; their version counters advance.

    An out array may be one of the inputs. Shapes and dtypes must be those that the op infers. Raises ShapeError.
    """
    if thread.capture is not None:
        thread.capture.into(op, inputs, params, outs)
        return
    device = outs[0].device
    params = freeze(params)
    specs = tuple(input_spec(x) for x in inputs)
    for x in inputs:
        if hasattr(x, "device") and x.device is not device:
            raise _mismatch(op, (*inputs, *outs))
    aliases = _aliases(inputs, outs)
    key = (*plan_key(op, params, specs), "into", *[o.ref.spec for o in outs], aliases)
    plan = device.plans.get(key)
    if plan is None:
        plan = device.planner.plan_into(op, specs, params, tuple(o.ref.spec for o in outs), aliases)
        device.plans[key] = plan
    plan.run([arg(x) for x in inputs], [o.ref for o in outs])
    for out in outs:
        out.buffer.version += 1


def overwrite(target: Any, value: Any) -> None:
    """Replace the elements of an array, seen in any way, by a number or by those of an array of its shape, cast."""
    if thread.capture is not None:
        thread.capture.overwrite(target, value)
        return
    if target.ref.size:
        backend = target.device.backend
        if hasattr(value, "ref"):
            backend.copy(value.ref, target.ref)
        else:
            backend.fill(value, target.ref)
    target.buffer.version += 1


def _aliases(inputs: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[int, ...]:
    """Which input each output is, exactly; SEPARATE if it shares memory with none, OVERLAPPING if it does in another way."""
    holders: dict[int, int] = {}
    shared: set[int] = set()
    for i, x in enumerate(inputs):
        if hasattr(x, "ref") and holders.setdefault(id(x.buffer), i) != i:
            shared.add(id(x.buffer))
    found = []
    for out in outs:
        i = holders.get(id(out.buffer), SEPARATE)
        if i != SEPARATE:
            x = inputs[i]
            exact = x.ref.offset == out.ref.offset and x.ref.spec == out.ref.spec
            i = i if exact and id(out.buffer) not in shared else OVERLAPPING
        found.append(i)
    return tuple(found)


def input_spec(x: Any) -> Any:
    """The planning key of an input: its spec, a Python number's type, or None."""
    if x is None:
        return None
    kind = type(x)
    return kind if kind in _NUMBERS else x.ref.spec


def make_plan(device: Device, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...]) -> Plan:
    """Plan `op` for the specs of `inputs` and remember it on the device."""
    specs = tuple(input_spec(x) for x in inputs)
    plan = device.planner.plan(op, specs, params)
    device.plans[plan_key(op, params, specs)] = plan
    return plan


def plan_key(op: OpDef, params: tuple[Any, ...], specs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the plan of a call is remembered under, from what `input_spec` says of its inputs."""
    return (op, params, settings.key, *[type(None) if s is None else s for s in specs])


def infer(
    op: OpDef, specs: tuple[InputSpec | None, ...], params: dict[str, Any]
) -> list[tuple[DType, tuple[int, ...]]]:
    """The op's shape and dtype rule, with plain ValueErrors turned into ShapeErrors that name the op."""
    try:
        return list(op.infer(specs, params))
    except PolyhalError:
        raise
    except (ValueError, TypeError, IndexError) as error:
        listed = ", ".join("none" if s is None else str(s) for s in specs)
        raise ShapeError(message(op.name, f"{error} (inputs: {listed})")) from error


def scalar_dtype(value: Any) -> DType:
    """The dtype that a Python number stands for when no tensor decides otherwise."""
    if isinstance(value, bool):
        return dtypes.bool_
    return dtypes.DEFAULT_INT if isinstance(value, int) else dtypes.DEFAULT_FLOAT


def freeze(value: Any) -> Any:
    """`value` with lists, arrays of integers and NumPy numbers turned into hashable Python ones."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def _convert(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any) -> Any:
    """The slow way in: NumPy arrays, NumPy numbers and nested lists become arrays beside the others."""
    converted, target = admitted(op, inputs, device)
    return eager(op, converted, params, target)


def admitted(op: OpDef, inputs: tuple[Any, ...], device: Any) -> tuple[tuple[Any, ...], Device]:
    """Inputs as arrays and numbers, and the one device that they lie on. Raises DeviceMismatchError."""
    target = next((x.device for x in inputs if hasattr(x, "ref")), None)
    if target is None:
        target = frontend.device(thread.device if device is None else device)
    elif device is not None and frontend.device(device) is not target:
        raise _mismatch(op, inputs)
    converted = tuple(_converted(x, target) for x in inputs)
    if op.inputs and op.family != "random" and not any(hasattr(x, "ref") for x in converted):
        converted = (frontend.convert(converted[0], target), *converted[1:])
    return converted, target


def _converted(x: Any, device: Any) -> Any:
    """An operand as a number or an array. NumPy numbers count as Python numbers, so that they do not widen a tensor."""
    if isinstance(x, np.generic):
        return x.item()
    if x is None or type(x) in _NUMBERS or hasattr(x, "ref") or hasattr(x, "refresh"):
        return x
    return frontend.convert(x, device)


def _mismatch(op: OpDef, inputs: tuple[Any, ...]) -> DeviceMismatchError:
    found = sorted({str(x.device) for x in inputs if hasattr(x, "ref")})
    return DeviceMismatchError(
        message(
            op.name, f"inputs lie on {' and '.join(found)}", expected="one device", fix="move them with .to(device)"
        )
    )


def unsupported_dtype(op: OpDef, dtype: DType, expected: str) -> UnsupportedDTypeError:
    """The error for an element type that an op does not take."""
    return UnsupportedDTypeError(message(op.name, f"got {dtype.name}", expected=expected, fix="cast with .to(dtype)"))


__all__ = [
    "Array",
    "Ref",
    "ScalarSpec",
    "Spec",
    "admitted",
    "apply",
    "apply_into",
    "capturing",
    "eager",
    "executing",
    "freeze",
    "infer",
    "overwrite",
    "thread",
]
