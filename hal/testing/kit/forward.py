"""Forward checks: values, shapes, dtypes, layouts, writes outside the output, and the same through required members
only.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ALIGNMENT
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.planning.plan import OpPlan
from polyhal.hal.testing.certification.record import Record
from polyhal.hal.testing.kit.arrangements import ARRANGEMENTS, Arrangement, Guarded, adapted, arrange, poison_pool
from polyhal.hal.testing.kit.failures import ResultError, during
from polyhal.hal.testing.kit.scope import Scope, primary
from polyhal.hal.testing.kit.tolerances import Measure, check_close
from polyhal.hal.testing.kit.values import Call, Expectation, expect, runnable
from polyhal.tensor import Tensor


def run(call: Call, inputs: tuple[Any, ...], device: Device) -> tuple[Tensor, ...]:
    """The results of a call, always as a tuple."""
    result = dispatch.apply(call.op, inputs, tuple(call.params.values()), device)
    return result if isinstance(result, tuple) else (result,)


def placed(
    call: Call, arrangements: tuple[Arrangement, ...], device: Device
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The call's values as adapted to the arrangements, and the inputs made of them on the device."""
    values: list[Any] = []
    inputs: list[Any] = []
    for value, arrangement in zip(call.values, arrangements, strict=True):
        tensor = isinstance(value, np.ndarray)
        values.append(adapted(value, arrangement) if tensor else value)
        inputs.append(arrange(values[-1], arrangement, device) if tensor else value)
    return tuple(values), tuple(inputs)


def plain(call: Call) -> tuple[Arrangement, ...]:
    return (Arrangement.CONTIGUOUS,) * len(call.values)


def rotation(call: Call, shift: int) -> tuple[Arrangement, ...]:
    """A different arrangement for every input, moving on with the sample and `shift`."""
    n = len(ARRANGEMENTS)
    return tuple(ARRANGEMENTS[(call.number + shift + 3 * i) % n] for i in range(len(call.values)))


def check_results(
    call: Call, results: tuple[Tensor, ...], wanted: Expectation, what: str, measure: Measure | None = None
) -> None:
    """Raise ResultError unless dtypes, shapes and values are the expected ones; `measure` is told the errors."""
    if len(results) != len(wanted.outputs) or len(results) != len(wanted.values):
        raise ResultError(
            what, f"{len(results)} results; the rule says {len(wanted.outputs)}, the reference {len(wanted.values)}"
        )
    names = (
        call.op.schema.outputs
        if len(call.op.schema.outputs) == len(results)
        else tuple(str(i) for i in range(len(results)))
    )
    for name, out, spec, value, bound in zip(names, results, wanted.outputs, wanted.values, wanted.bounds, strict=True):
        label = f"{what} -> {name}"
        if out.dtype is not spec.dtype or out.shape != spec.shape:
            raise ResultError(label, f"the result is {out.spec}; expected {spec}")
        check_close(out.numpy(), value, spec.dtype, bound, label, measure)


def forward(device: Device, op: OpDef, dtype: DType | None, scope: Scope, record: Record | None = None) -> None:
    """Check every sample of `op` in `dtype`, in arrangements that rotate from sample to sample and from dtype to dtype.

    Raises ResultError that names the call, the arrangements and the first wrong element. `record` takes in how the op ran
    and how far it was off.
    """
    measure = record.measure(op, dtype) if record is not None else None
    guarded = False
    for call, arrangements in placements(device, op, dtype, scope):
        values, inputs = placed(call, arrangements, device)
        wanted = expect(call, values=values)
        what = f"{call} as {', '.join(arrangements)}" if _has_tensors(call) else str(call)
        poison_pool(device, [s.nbytes for s in wanted.outputs])
        with during(what, functools.partial(_how, call, inputs, device)):
            results = run(call, inputs, device)
            if record is not None:
                record.ran(op, dtype, planned(call, inputs, device).resolution.step)
            check_results(call, results, wanted, what, measure)
            if not guarded and _has_tensors(call) and all(s.size for s in wanted.outputs) and op.view is None:
                guarded = True
                _write_into(call, inputs, wanted, device, shift(op, dtype), what)
    if op.schema.mutates:
        for call in runnable(device, op, dtype, scope):
            with during(f"{call} in place"):
                _in_place(call, device)


def placements(
    device: Device, op: OpDef, dtype: DType | None, scope: Scope
) -> Iterator[tuple[Call, tuple[Arrangement, ...]]]:
    """The calls of the forward check, each with the arrangements of its inputs."""
    made = runnable(device, op, dtype, scope)
    first, turns = shift(op, dtype), rounds(op, dtype, len(made), scope)
    for call in made:
        for turn in range(turns if _has_tensors(call) else 1):
            yield call, rotation(call, first + turn * len(made))


def _how(call: Call, inputs: tuple[Any, ...], device: Device) -> str:
    """How a call ran, in a few words; empty where it did not come to that."""
    try:
        return planned(call, inputs, device).resolution.how
    except KeyError:
        return ""


def _has_tensors(call: Call) -> bool:
    return any(isinstance(v, np.ndarray) for v in call.values)


def planned(call: Call, inputs: tuple[Any, ...], device: Device) -> OpPlan:
    """The plan by which a call ran."""
    specs = tuple(dispatch.input_spec(x) for x in inputs)
    return device.plans[dispatch.plan_key(call.op, dispatch.freeze(tuple(call.params.values())), specs)]


def rounds(op: OpDef, dtype: DType | None, samples: int, scope: Scope) -> int:
    """How often samples are repeated, so that few of them still meet every arrangement in the primary dtype."""
    if scope.full:
        return len(ARRANGEMENTS)
    return -(-len(ARRANGEMENTS) // max(samples, 1)) if dtype is primary(op) and not scope.small else 1


def shift(op: OpDef, dtype: DType | None) -> int:
    """Where the rotation starts: the same on every machine, different from op to op and from dtype to dtype."""
    position = op.tests.dtypes.index(dtype) if dtype in op.tests.dtypes else 0
    return zlib.crc32(op.name.encode()) + position * 2


def _write_into(
    call: Call, inputs: tuple[Any, ...], wanted: Expectation, device: Device, first: int, what: str
) -> None:
    """Write the results into poisoned buffers: on a vector boundary, past one, or with gaps between the elements."""
    lead, strided = [(ALIGNMENT, False), (ALIGNMENT + 1, False), (ALIGNMENT, True)][first % 3]
    outs = [Guarded(s, device, lead, strided=strided) for s in wanted.outputs]
    dispatch.apply_into(call.op, inputs, tuple(call.params.values()), tuple(o.tensor for o in outs))
    label = f"{what} into {'a strided output' if strided else f'an output at offset {lead}'}"
    check_results(call, tuple(o.tensor for o in outs), wanted, label)
    for out in outs:
        out.check(label)


def _in_place(call: Call, device: Device) -> None:
    """Have an optimizer-like op replace its own inputs."""
    _, inputs = placed(call, plain(call), device)
    wanted = expect(call)
    targets = tuple(inputs[i] for i in replaced(call))
    dispatch.apply_into(call.op, inputs, tuple(call.params.values()), targets)
    check_results(call, targets, wanted, f"{call} in place")


def replaced(call: Call) -> tuple[int, ...]:
    """Which input each output replaces.

    Inputs come in groups of `count` tensors: parameters, gradients, then state; last, if `counted`, the number of the step.
    The outputs are the parameters and the state.
    """
    tensors = sum(1 for v in call.values if isinstance(v, np.ndarray)) - bool(call.params.get("counted"))
    outputs = len(expect(call).outputs)
    count = call.params.get("count", outputs)
    state = outputs - count
    return (*range(count), *range(tensors - state, tensors))


def required_only(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> None:
    """Check samples on `device`, which is a bare one: the op runs through its decomposition or a required member."""
    for call in runnable(device, op, dtype, scope):
        values, inputs = placed(call, plain(call), device)
        what = f"{call} through required members only"
        with during(what):
            check_results(call, run(call, inputs, device), expect(call, values=values), what)


def errors(device: Device, op: OpDef) -> None:
    """Check that every error sample raises the stated type and text, and that the device computes on afterwards."""
    for number, sample in enumerate(op.tests.errors):
        inputs = tuple(
            x
            if x is None or type(x) in (bool, int, float)
            else arrange(_default(np.asarray(x)), Arrangement.CONTIGUOUS, device)
            for x in sample.inputs
        )
        params = {**op.schema.params, **sample.params}
        what = f"{op.name} error sample {number}"
        used = device.memory_stats().used
        try:
            dispatch.apply(op, inputs, tuple(params.values()), device)
        except sample.error as error:
            text = str(error)
            if not re.search(sample.match, text):
                raise AssertionError(f"{what}: the message {text!r} does not match {sample.match!r}") from error
            if op.name not in text:
                raise AssertionError(f"{what}: the message {text!r} does not name the op") from error
        else:
            raise AssertionError(f"{what}: expected {sample.error.__name__}, but nothing was raised")
        if device.memory_stats().used != used:
            raise AssertionError(f"{what}: the failed call kept {device.memory_stats().used - used} bytes")
        probe = arrange(np.array([1.0, 2.0], np.float32), Arrangement.CONTIGUOUS, device)
        if (probe + probe).tolist() != [2.0, 4.0]:
            raise AssertionError(f"{what}: the device computes wrong results after the error")


def _default(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array
