"""Recorded launches of the CUDA backend: graphs whose nodes are updated only when their arguments change."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation

from polyhal.hal import dtypes
from polyhal.hal.command_buffers import BindingSlot
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.errors import BackendError, NumberRangeError
from polyhal.hal.layout import Ref, Spec, contiguous

_SIZE = 6
_SPEC = contiguous(dtypes.float32, (_SIZE,))._replace(aligned=False)
_UPDATE, _LAUNCH = "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch"
_EDGE = "cuGraphAddDependencies_v2"


def filled(emulation: Emulation, value: float) -> Ref:
    return emulation.harness.upload(np.full(_SIZE, value, np.float32))


def number_of(value: float) -> RuntimeScalar:
    """Return a number that tests change by its attribute `value`."""
    return RuntimeScalar(lambda: value)


def test_a_submission_is_one_call_and_updates_only_nodes_that_follow_what_changed(emulation: Emulation) -> None:
    backend, library = emulation.backend, emulation.library
    x, y, out = (filled(emulation, v) for v in (1, 2, 0))
    slot, number = BindingSlot(), number_of(5.0)
    moved = Ref(slot, _SPEC, 0)
    slot.handle = x.handle
    commands = backend.record(
        [
            partial(backend.fill, number, out),  # follows the number
            partial(backend.binary, "add", out, moved, out),  # follows the slot
            partial(backend.binary, "mul", out, y, out),  # follows neither
        ]
    )
    assert len(commands.launches) == 3
    commands.submit([slot])
    assert (emulation.harness.download(out) == 12).all()
    with library.logged() as calls:
        commands.submit([])
    assert [c for c in calls if c.startswith("cuGraph") or c == "cuLaunchKernelEx"] == [_LAUNCH]
    number.value = 7.0
    with library.logged() as calls:
        commands.submit([])
    assert calls.count(_UPDATE) == calls.count(_LAUNCH) == 1
    assert (emulation.harness.download(out) == 16).all()
    slot.handle = y.handle
    with library.logged() as calls:
        commands.submit([slot])
    assert calls.count(_UPDATE) == calls.count(_LAUNCH) == 1
    assert (emulation.harness.download(out) == 18).all()


@pytest.mark.parametrize("launches", [1, 2])
def test_work_that_was_submitted_keeps_its_arguments(emulation: Emulation, launches: int) -> None:
    """The device has not started when the second submission changes the number and the memory."""
    backend = emulation.backend
    outs = [filled(emulation, 0) for _ in range(3)]
    slot, number = BindingSlot(), number_of(0.0)
    slot.handle = outs[0].handle
    fill = partial(backend.fill, number, Ref(slot, _SPEC, 0))
    commands = backend.record([fill] * launches)
    for i, out in enumerate(outs):
        slot.handle, number.value = out.handle, float(i + 1)
        commands.submit([slot])
    for i, out in enumerate(outs):
        assert (emulation.harness.download(out) == i + 1).all()


def test_a_single_launch_needs_no_graph(emulation: Emulation) -> None:
    backend, library = emulation.backend, emulation.library
    x, number = filled(emulation, 0), number_of(1.0)
    commands = backend.record([partial(backend.fill, number, x)])
    for value in (1.0, 2.0):
        number.value = value
        with library.logged() as calls:
            commands.submit([])
        assert not any(c.startswith("cuGraph") for c in calls)
        assert (emulation.harness.download(x) == value).all()


def test_the_context_is_made_current_only_on_threads_where_it_is_not(emulation: Emulation) -> None:
    backend, library = emulation.backend, emulation.library
    x = filled(emulation, 1)
    commands = backend.record([partial(backend.binary, "add", x, x, x)] * 2)
    commands.submit([])

    def pushes() -> int:
        with library.logged() as calls:
            commands.submit([])
        return calls.count("cuCtxPushCurrent_v2")

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(pushes).result() == 1
    with backend.runtime.context:
        assert pushes() == 0
    assert (emulation.harness.download(x) == 4**3).all()


def test_nodes_run_in_their_order(emulation: Emulation) -> None:
    """The emulated driver runs nodes without a dependency between them from the last to the first."""
    backend = emulation.backend
    x, one = filled(emulation, 1), filled(emulation, 1)
    steps = [partial(backend.binary, op, x, operand, x) for op, operand in (("add", one), ("mul", x), ("sub", one))]
    backend.record(steps * 2).submit([])
    assert (emulation.harness.download(x) == ((2 * 2 - 1) + 1) ** 2 - 1).all()


def test_a_kernel_that_awaits_its_inputs_may_start_early_unless_its_weights_are_written(
    emulation: Emulation,
) -> None:
    backend, library = emulation.backend, emulation.library
    x, out, weight = filled(emulation, 2), filled(emulation, 0), filled(emulation, 3)
    slot = BindingSlot()
    slot.handle = out.handle
    commands = backend.record(
        [
            partial(backend.binary, "add", x, x, Ref(slot, _SPEC, 0)),
            partial(backend.binary, "mul", out, weight, out),
            partial(backend.fill, 5.0, weight),
            partial(backend.binary, "mul", out, weight, out),
        ]
    )
    for b in (commands.bound[1], commands.bound[3]):
        b.prepared.dependent = True
        b.early.append(weight.handle)
    with library.logged() as calls:
        commands.submit([slot])
    assert calls.count(_EDGE) == 1  # the second launch; one before the last writes the weight
    assert (emulation.harness.download(out) == (2 + 2) * 3 * 5).all()
    slot.handle = weight.handle  # the first launch writes the memory of the slot
    with library.logged() as calls:
        commands.submit([slot])
    assert "cuGraphCreate" in calls
    assert _EDGE not in calls
    assert (emulation.harness.download(out) == (2 + 2) * 3 * 5 * (2 + 2) * 5).all()


def test_offsets_of_rebound_memory(emulation: Emulation) -> None:
    backend = emulation.backend
    whole = emulation.harness.upload(np.arange(20, dtype=np.float32))
    out = filled(emulation, 0)
    slot = BindingSlot()
    slot.handle = whole.handle
    commands = backend.record([partial(backend.copy, Ref(slot, _SPEC, 2), out)] * 2)
    for start in (0, 5, 11):
        slot.offset = start
        commands.submit([slot])
        np.testing.assert_array_equal(emulation.harness.download(out), np.arange(20)[start + 2 :][:_SIZE])


def test_graphs_take_turns(emulation: Emulation) -> None:
    backend = emulation.backend
    x = filled(emulation, 0)
    numbers = [number_of(float(i)) for i in range(3)]
    buffers = [backend.record([partial(backend.fill, n, x), partial(backend.binary, "add", x, x, x)]) for n in numbers]
    for turn in range(3):
        for number, commands in zip(numbers, buffers, strict=True):
            number.value += 10
            commands.submit([])
            if turn != 1:
                assert (emulation.harness.download(x) == 2 * number.value).all()


def test_profiled_replays_run_kernel_by_kernel_and_later_ones_have_the_newest_arguments(emulation: Emulation) -> None:
    backend, library = emulation.backend, emulation.library
    x, number = filled(emulation, 0), number_of(1.0)
    commands = backend.record([partial(backend.fill, number, x), partial(backend.unary, "neg", x, x)])
    commands.submit([])
    backend.start_profiling()
    number.value = 2.0
    with library.logged() as calls:
        commands.submit([])
    assert (calls.count("cuLaunchKernelEx"), calls.count(_LAUNCH)) == (2, 0)
    assert (emulation.harness.download(x) == -2).all()
    launches = backend.stop_profiling()
    assert [name for name, _, _ in launches] == [launch.kernel for launch in commands.launches]
    assert all(start <= end for _, start, end in launches)
    assert launches[0][2] <= launches[1][1] + 1000  # a microsecond: times are floats of milliseconds
    commands.submit([])
    assert (emulation.harness.download(x) == -2).all()


def test_a_recording_that_is_first_submitted_while_profiling(emulation: Emulation) -> None:
    backend = emulation.backend
    x, number = filled(emulation, 0), number_of(1.0)
    commands = backend.record([partial(backend.fill, number, x)] * 2)
    backend.start_profiling()
    commands.submit([])
    assert len(backend.stop_profiling()) == 2
    number.value = 3.0
    commands.submit([])
    assert (emulation.harness.download(x) == 3).all()


def test_an_empty_recording_calls_nothing(emulation: Emulation) -> None:
    commands = emulation.backend.record([])
    with emulation.library.logged() as calls:
        commands.submit([])
    assert calls == []


def test_a_graph_is_released_with_its_recording_and_running_work_ends(emulation: Emulation) -> None:
    backend, handles = emulation.backend, emulation.library.machine.handles
    x = filled(emulation, 0)
    commands = backend.record([partial(backend.fill, 4.0, x)] * 2)
    commands.submit([])
    assert len(handles.live("CUgraphExec")) == 1
    del commands
    gc.collect()
    assert [handles.live(kind) for kind in ("CUgraph", "CUgraphExec", "CUgraphNode")] == [[], [], []]
    assert (emulation.harness.download(x) == 4).all()


@pytest.mark.parametrize("function", ["cuGraphInstantiateWithFlags", _UPDATE, _LAUNCH])
def test_a_refused_submission_is_typed_and_the_next_one_is_complete(emulation: Emulation, function: str) -> None:
    backend, library = emulation.backend, emulation.library
    x, number = filled(emulation, 0), number_of(1.0)
    commands = backend.record([partial(backend.fill, number, x)] * 2)
    if function != "cuGraphInstantiateWithFlags":
        commands.submit([])
        number.value = 2.0
    library.refused[function] = 1
    with pytest.raises(
        BackendError, match=rf"submitting 2 recorded launches failed with CUDA_ERROR_INVALID_VALUE.*{function}"
    ):
        commands.submit([])
    library.refused.clear()
    commands.submit([])
    assert (emulation.harness.download(x) == number.value).all()


def test_a_number_that_does_not_fit_spoils_no_other_change(emulation: Emulation) -> None:
    backend = emulation.backend
    outs = [filled(emulation, 0) for _ in range(2)]
    slot, first, wide = BindingSlot(), number_of(1.0), number_of(7)
    slot.handle = outs[0].handle
    longs = emulation.harness.empty(dtypes.int64, (1,))
    commands = backend.record([partial(backend.fill, first, Ref(slot, _SPEC, 0)), partial(backend.fill, wide, longs)])
    commands.submit([slot])
    slot.handle, first.value, wide.value = outs[1].handle, 2.0, 2**64
    for rebound in ([slot], []):
        with pytest.raises(NumberRangeError, match="an integer of 65 bits"):
            commands.submit(rebound)
    wide.value = 2**63
    commands.submit([])
    assert [set(emulation.harness.download(out)) for out in outs] == [{1}, {2}]
    assert emulation.harness.download(longs)[0] == -(2**63)


def test_a_graph_runs_on_the_stream_of_its_thread(emulation: Emulation) -> None:
    backend = emulation.backend
    x = filled(emulation, 0)
    backend.synchronize()
    commands = backend.record([partial(backend.fill, 4.0, x)] * 2)
    backend.switch_stream(backend.open_stream())
    commands.submit([])
    marked: Any = backend.mark()
    backend.switch_stream(None)
    assert not marked.is_complete()
    backend.wait_for(marked)
    assert (emulation.harness.download(x) == 4).all()


def test_rebinding_by_a_transposed_view(emulation: Emulation) -> None:
    backend = emulation.backend
    slot, out = BindingSlot(), emulation.harness.empty(dtypes.float32, (3, 2))
    tables = [emulation.harness.upload(np.arange(6, dtype=np.float32) + k) for k in (0, 10)]
    slot.handle = tables[0].handle
    turned = Ref(slot, Spec(dtypes.float32, (3, 2), (1, 3), False), 0)
    commands = backend.record([partial(backend.copy, turned, out)] * 2)
    for table in tables:
        slot.handle = table.handle
        commands.submit([slot])
        wanted = emulation.harness.download(table).reshape(2, 3).T
        np.testing.assert_array_equal(emulation.harness.download(out), wanted)
