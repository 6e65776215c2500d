"""Forward checks: values, shapes, dtypes, memory layouts, writes outside the output, and error messages.

The same samples are also checked on a device reduced to the required members, which runs the op's decomposition.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.bounds import without_index_checks
from polyhal.hal.core.execution.op_plan import OpPlan
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype, float32, float64
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.system.reference.op_calls import ExpectedResults, OpCall, expected_results, is_number
from polyhal.hal.system.reference.tolerances import Measure, ResultError, check_close
from polyhal.hal.testing.certification.run_record import RunRecord
from polyhal.hal.testing.kit.failures import failure_context
from polyhal.hal.testing.kit.guarded_runs import PLACEMENTS, guarded_outputs
from polyhal.hal.testing.kit.guards import poison_pool
from polyhal.hal.testing.kit.input_layouts import INPUT_LAYOUTS, InputLayout, place_input, values_in_layout
from polyhal.hal.testing.kit.sample_calls import runnable_calls
from polyhal.hal.testing.kit.scope import Scope, primary
from polyhal.tensor import Tensor

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Inputs

Layouts = tuple[InputLayout, ...]
"""Layouts, one per input."""


# --- calls ----------------------------------------------------------------------------------------------------------


def run_call(call: OpCall, inputs: Inputs, device: Device) -> tuple[Tensor, ...]:
    """Run a call; returns a tuple for any number of results."""
    result = dispatch.apply(call.op, inputs, tuple(call.params.values()), device)
    return result if isinstance(result, tuple) else (result,)


def place_inputs(call: OpCall, layouts: Layouts, device: Device) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the call's values in the layouts, and the inputs on the device."""
    values: list[Any] = []
    inputs: list[Any] = []
    for value, layout in zip(call.values, layouts, strict=True):
        is_tensor = isinstance(value, np.ndarray)
        values.append(values_in_layout(value, layout) if is_tensor else value)
        inputs.append(place_input(values[-1], layout, device) if is_tensor else value)
    return tuple(values), tuple(inputs)


def contiguous_layouts(call: OpCall) -> Layouts:
    """Return the contiguous layout for every input."""
    return (InputLayout.CONTIGUOUS,) * len(call.values)


def rotated_layouts(call: OpCall, start: int) -> Layouts:
    """Return a different layout for every input, rotated by the sample number and `start`."""
    n = len(INPUT_LAYOUTS)
    return tuple(INPUT_LAYOUTS[(call.number + start + 3 * i) % n] for i in range(len(call.values)))


def rotation_rounds(op: OpDef, dtype: DType | None, samples: int, scope: Scope) -> int:
    """Return the number of repetitions of the samples, so that even few samples cover every layout in the primary dtype."""
    if scope.full:
        return len(INPUT_LAYOUTS)
    return -(-len(INPUT_LAYOUTS) // max(samples, 1)) if dtype is primary(op) and not scope.small else 1


def rotation_start(op: OpDef, dtype: DType | None) -> int:
    """Return the start of the rotation: equal on every machine, different for each op and dtype."""
    position = op.tests.dtypes.index(dtype) if dtype in op.tests.dtypes else 0
    return zlib.crc32(op.name.encode()) + position * 2


def placed_calls(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> Iterator[tuple[OpCall, Layouts]]:
    """Yield the calls of the forward check, each with the layouts of its inputs."""
    calls = runnable_calls(device, op, dtype, scope)
    if scope.few_shapes:
        yield from ((call, contiguous_layouts(call)) for call in calls)
        return
    start, rounds = rotation_start(op, dtype), rotation_rounds(op, dtype, len(calls), scope)
    for call in calls:
        for turn in range(rounds if _has_tensors(call) else 1):
            yield call, rotated_layouts(call, start + turn * len(calls))


def plan_of(call: OpCall, inputs: Inputs, device: Device) -> OpPlan:
    """Return the plan by which a call ran. Raises KeyError if it did not run."""
    specs = tuple(dispatch.input_spec(x) for x in inputs)
    return device.plans[dispatch.plan_key(call.op, dispatch.freeze(tuple(call.params.values())), specs)]


def _resolution(call: OpCall, inputs: Inputs, device: Device) -> str:
    """Describe the resolution of a call; empty if it failed before."""
    try:
        return plan_of(call, inputs, device).resolution.how
    except KeyError:
        return ""


def _has_tensors(call: OpCall) -> bool:
    return any(isinstance(v, np.ndarray) for v in call.values)


# --- checks ---------------------------------------------------------------------------------------------------------


@without_index_checks()
def check_forward(
    device: Device, op: OpDef, dtype: DType | None, scope: Scope, record: RunRecord | None = None
) -> None:
    """Check every sample of `op` in `dtype`, in layouts that rotate with the sample and the dtype.

    The results of each call are also written between guard zones, and the results of the first call in every placement.

    `record` receives the resolution of the op and its error. Raises ResultError with the call, the layouts and the
    first wrong element.
    """
    measure = record.measure(op, dtype) if record is not None else None
    guarded: set[int] = set()
    references: dict[tuple[int, tuple[bool, ...]], ExpectedResults] = {}
    for call, layouts in placed_calls(device, op, dtype, scope):
        values, inputs = place_inputs(call, layouts, device)
        # Only a broadcast changes the values of an input.
        key = call.number, tuple(layout is InputLayout.BROADCAST for layout in layouts)
        if key not in references:
            references[key] = expected_results(call, values=values)
        expected = references[key]
        what = f"{call} as {', '.join(layouts)}" if _has_tensors(call) else str(call)
        poison_pool(device, [s.nbytes for s in expected.outputs])
        with failure_context(what, functools.partial(_resolution, call, inputs, device)):
            results = run_call(call, inputs, device)
            if record is not None:
                record.ran(op, dtype, plan_of(call, inputs, device).resolution.step)
            check_results(call, results, expected, what, measure)
            if call.number not in guarded and call.computes and op.view is None:
                for placement in PLACEMENTS[:1] if guarded or scope.few_shapes else PLACEMENTS:
                    outs = guarded_outputs(call, inputs, expected, device, placement, what)
                    check_results(call, tuple(o.tensor for o in outs), expected, f"{what} into {placement.name}")
                guarded.add(call.number)
    if op.schema.mutates:
        for call in runnable_calls(device, op, dtype, scope):
            with failure_context(f"{call} in place"):
                _check_in_place(call, device)


def check_results(
    call: OpCall, results: tuple[Tensor, ...], expected: ExpectedResults, what: str, measure: Measure | None = None
) -> None:
    """Raise ResultError unless dtypes, shapes and values are as expected; `measure` receives the errors."""
    if len(results) != len(expected.outputs) or len(results) != len(expected.values):
        raise ResultError(
            what,
            f"{len(results)} results; {len(expected.outputs)} by the rule, {len(expected.values)} by the reference",
        )
    declared = call.op.schema.outputs
    names = declared if len(declared) == len(results) else tuple(map(str, range(len(results))))
    labels = [f"{what} -> {name}" for name in names]
    for label, out, spec in zip(labels, results, expected.outputs, strict=True):
        if out.dtype is not spec.dtype or out.shape != spec.shape:
            raise ResultError(label, f"the result is {out.spec}; expected {spec}")
    got, wanted = (made_unique(call.op, x) for x in ([out.numpy() for out in results], expected.values))
    rows = zip(labels, got, wanted, expected.outputs, expected.bounds, strict=True)
    for label, array, value, spec, bound in rows:
        check_close(array, value, spec.dtype, bound, label, measure)


def made_unique(op: OpDef, results: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return results multiplied by the factors that make them unique (see `OpTests`)."""
    if op.tests.unique is None:
        return list(results)
    return [np.asarray(x * f, x.dtype) for x, f in zip(results, op.tests.unique(tuple(results)), strict=True)]


def _check_in_place(call: OpCall, device: Device) -> None:
    """Check an op that mutates with outputs that replace its inputs."""
    _, inputs = place_inputs(call, contiguous_layouts(call), device)
    expected = expected_results(call)
    targets = tuple(inputs[i] for i in replaced_inputs(call))
    dispatch.apply_into(call.op, inputs, tuple(call.params.values()), targets)
    check_results(call, targets, expected, f"{call} in place")


def replaced_inputs(call: OpCall) -> tuple[int, ...]:
    """Return the input that each output replaces.

    Inputs come in groups of `count` tensors: parameters, gradients, then states. The outputs are the parameters and the
    states.
    """
    outputs = len(expected_results(call).outputs)
    count = call.params.get("count", outputs)
    return (*range(count), *range(2 * count, count + outputs))


@without_index_checks()
def check_core_only(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> None:
    """Check the samples on a `core_only` device: through the op's decomposition or a required member."""
    for call in runnable_calls(device, op, dtype, scope):
        values, inputs = place_inputs(call, contiguous_layouts(call), device)
        what = f"{call} through required members only"
        with failure_context(what):
            check_results(call, run_call(call, inputs, device), expected_results(call, values=values), what)


def check_errors(device: Device, op: OpDef) -> None:
    """Check that every error sample raises the stated type and text, and that the device still computes afterwards."""
    for number, sample in enumerate(op.tests.errors):
        if not all(x is None or is_number(x) or _error_dtype(x) in device.capabilities.storage for x in sample.inputs):
            continue
        inputs = tuple(x if x is None or is_number(x) else _error_input(x, device) for x in sample.inputs)
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
                raise AssertionError(f"{what}: the message {text!r} does not contain the op's name") from error
        else:
            raise AssertionError(f"{what}: expected {sample.error.__name__}, but nothing was raised")
        if device.memory_stats().used != used:
            raise AssertionError(f"{what}: the failed call kept {device.memory_stats().used - used} bytes")
        probe = place_input(np.array([1.0, 2.0], np.float32), InputLayout.CONTIGUOUS, device)
        if (probe + probe).tolist() != [2.0, 4.0]:
            raise AssertionError(f"{what}: the device computes wrong results after the error")


def _error_dtype(x: Any) -> DType:
    """Return the dtype of an input of an error sample on a device: float64 becomes float32, which every device has."""
    dtype = as_dtype(np.asarray(x).dtype)
    return float32 if dtype is float64 else dtype


def _error_input(x: Any, device: Device) -> Tensor:
    return place_input(np.asarray(x).astype(_error_dtype(x).numpy), InputLayout.CONTIGUOUS, device)
