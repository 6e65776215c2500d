"""Run a recorded graph once, op by op: for a recording that ends before the program does what it cannot record.

Ops run as in eager execution, so results are bitwise equal to those of a program that was not recorded. Tensors that were made
in the recording then have memory, and changes in place are in the memory of the tensors from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.replay_log import replay
from polyhal.hal.compile.capture.result import CapturedGraph, InputSource, StepInput
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph, Node, Value
from polyhal.hal.compile.planning.host_calls import call_now
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import Array
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.core.settings.state import settings
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.ops.layout.host_call import HOST_CALL
from polyhal.hal.ops.traits import Trait

if TYPE_CHECKING:
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device


def run_op_by_op(captured: CapturedGraph, arguments: Sequence[Array]) -> None:
    """Run a graph once with this thread's executor. `arguments` are the arrays of its step inputs, by position."""
    replay(captured.replay_actions, partial(_run, captured, arguments))


def _run(captured: CapturedGraph, arguments: Sequence[Array]) -> None:
    inputs = [input_array(source, arguments) for source in captured.sources]
    values = _computed(captured.graph, inputs)
    outside = {id(x.buffer) for x in inputs if isinstance(x, Array)}
    updates = [(inputs[i], values[v]) for i, v in captured.graph.updates.items()]
    updates = [(target, _copy(value) if id(value.buffer) in outside else value) for target, value in updates]
    made = [(tensor, values[captured.graph.outputs[output]]) for tensor, output in captured.live_outs]
    numbers = [captured.memories[output] for _, output in captured.live_outs]
    places = [_memory(group, outside) for group in _grouped(made, numbers)]
    for target, value in updates:  # after all reads of the former elements
        dispatch.thread.executor.overwrite(target, value)
    for tensor, place in (pair for group in places for pair in group):
        tensor.buffer, tensor.ref, tensor.device = place.buffer, place.ref, place.device


def input_array(source: InputSource, arguments: Sequence[Array]) -> Any:
    """Return the array or number of a graph input. `arguments` are the arrays of the step inputs."""
    if isinstance(source, StepInput):
        x = arguments[source.position]
        return _array(x.device, x.buffer, Ref(x.ref.handle, source.spec, x.ref.offset))
    if isinstance(source, CapturedConstant):
        return _array(source.device, source.buffer, source.ref)
    return source.value if isinstance(source, RuntimeScalar) else source


def _computed(graph: Graph, inputs: list[Any]) -> dict[int, Any]:
    """Return the values that remain: the inputs, and those that the graph returns or writes to inputs."""
    values: dict[int, Any] = dict(enumerate(inputs))
    last = {i: k for k, node in enumerate(graph.nodes) for i in node.reads}
    kept = {*range(len(inputs)), *graph.outputs, *graph.updates.values()}
    for k, node in enumerate(graph.nodes):
        operands = tuple(values[x.index] if isinstance(x, Value) else x for x in node.inputs)
        results = applied(node, operands)
        values.update(zip(node.outputs, results, strict=True))
        for i in {*node.reads, *node.outputs}:
            if i not in kept and last.get(i, k) == k:
                del values[i]
    return values


def applied(node: Node, operands: tuple[Any, ...]) -> Sequence[Any]:
    """Run a recorded node with this thread's executor. Returns the results."""
    executor = dispatch.thread.executor
    with settings.restored(node.place.settings):
        if Trait.COLLECTIVE in node.op.traits:
            collective, communicator, dtype = node.params
            return executor.communicate(collective, communicator, dtype, operands)
        if node.op is HOST_CALL:
            function, results = node.params
            return call_now(node.device, function, results, operands)
        if node.op.family == "transfer":
            return (executor.transfer(operands[0], node.device),)
        out = executor.apply(node.op, operands, node.params, node.device)
    return out if node.op.schema.returns_tuple else (out,)


def _grouped(made: list[tuple[Any, Any]], numbers: Sequence[int | None]) -> list[list[tuple[Any, Any]]]:
    """Return the tensors with their values, those of one memory together."""
    groups: dict[int | None, list[tuple[Any, Any]]] = {}
    for pair, number in zip(made, numbers, strict=True):
        groups.setdefault(number, []).append(pair)
    return list(groups.values())


def _memory(group: list[tuple[Any, Any]], taken: set[int]) -> list[tuple[Any, Any]]:
    """Return places for the tensors of one memory. Adds its buffer to `taken`, the buffers that are in use already."""
    if len(group) == 1:
        tensor, value = group[0]
        if (
            value.ref.spec == tensor.ref.spec
            and value.ref.offset == tensor.ref.offset
            and id(value.buffer) not in taken
        ):
            taken.add(id(value.buffer))
            return group
    first = group[0][0]
    dtype = first.ref.dtype
    buffer, ref = first.device.reserve(contiguous(dtype, (-(-first.buffer.nbytes // dtype.itemsize),)))
    places = [(t, _array(t.device, buffer, Ref(ref.handle, t.ref.spec, t.ref.offset))) for t, _ in group]
    for (_, value), (_, place) in zip(group, places, strict=True):
        dispatch.thread.executor.overwrite(place, value)
    taken.add(id(buffer))
    return places


def _copy(x: Array) -> Any:
    """Return a copy in memory of its own."""
    buffer, ref = x.device.reserve(contiguous(x.ref.dtype, x.ref.shape))
    place = _array(x.device, buffer, ref)
    dispatch.thread.executor.overwrite(place, x)
    return place


def _array(device: Device, buffer: Buffer, ref: Ref) -> Any:
    return dispatch.frontend.wrap(device, buffer, ref)
