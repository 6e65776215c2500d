"""Branches of CUDA graphs: launches that use different memory do not wait for each other."""

from __future__ import annotations

import gc
from functools import partial

import numpy as np
from emulated_backend import Emulation

from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.cuda.launch import CudaLaunch
from polyhal.hal import dtypes
from polyhal.hal.command_buffers import BindingSlot
from polyhal.hal.layout import Ref, contiguous

_SIZE = 6
_SPEC = contiguous(dtypes.float32, (_SIZE,))._replace(aligned=False)
_EDGE = "cuGraphAddDependencies_v2"


def filled(emulation: Emulation, value: float) -> Ref:
    return emulation.harness.upload(np.full(_SIZE, value, np.float32))


def dependencies(emulation: Emulation) -> list[tuple[int, ...]]:
    """Return the nodes that each node of the only live graph follows."""
    (graph,) = emulation.library.machine.handles.live("CUgraph")
    places = {number: i for i, number in enumerate(graph.nodes)}
    return [tuple(places[n] for n in node.after) for node in graph.nodes.values()]


def test_launches_that_use_different_memory_are_branches(emulation: Emulation) -> None:
    """The emulated driver runs independent nodes from the last to the first."""
    backend = emulation.backend
    a, b, c, d = (filled(emulation, v) for v in (1, 2, 3, 4))
    commands = backend.record(
        [
            partial(backend.binary, "add", a, b, c),
            partial(backend.binary, "mul", a, b, d),
            partial(backend.unary, "neg", c, c),
            partial(backend.fill, 7.0, a),
            partial(backend.binary, "add", c, d, b),
        ]
    )
    commands.submit([])
    assert dependencies(emulation) == [(), (), (0,), (0, 1), (1, 2)]
    assert [set(emulation.harness.download(x)) for x in (a, b, c, d)] == [{7}, {-1}, {-3}, {2}]


def test_large_launches_follow_each_other(emulation: Emulation) -> None:
    """In a graph of mostly small launches; in others all do."""
    backend = emulation.backend
    arrays = [filled(emulation, 0) for _ in range(9)]
    commands = backend.record([partial(backend.fill, float(i), x) for i, x in enumerate(arrays)])
    for i in (0, 2, 3):
        commands.bound[i].is_small = False
    commands.submit([])
    assert dependencies(emulation) == [(), (), (0,), (2,), *[()] * 5]
    commands.bound[4].is_small = False
    commands._graph = None
    commands.submit([])
    assert dependencies(emulation) == [(), *((i,) for i in range(8))]


def test_launches_that_often_start_early_follow_each_other(emulation: Emulation) -> None:
    backend = emulation.backend
    commands = backend.record([partial(backend.fill, 1.0, filled(emulation, 0)) for _ in range(4)])
    for b in commands.bound[1:3]:
        b.prepared.dependent = True
    commands.submit([])
    assert dependencies(emulation) == [(), (0,), (1,), (2,)]


def test_a_launch_starts_early_after_the_last_of_its_predecessors(emulation: Emulation) -> None:
    backend, library = emulation.backend, emulation.library
    x, y, out, *others = (filled(emulation, v) for v in (1, 2, 0, 0, 0))
    steps = [partial(backend.fill, 3.0, x), partial(backend.fill, 4.0, y), partial(backend.binary, "add", x, y, out)]
    commands = backend.record(steps + [partial(backend.fill, 1.0, other) for other in others])
    commands.bound[2].prepared.dependent = True
    with library.logged() as calls:
        commands.submit([])
    assert dependencies(emulation) == [(), (), (0, 1), (), ()]
    assert calls.count(_EDGE) == 1
    assert (emulation.harness.download(out) == 7).all()


def test_kernels_whose_groups_wait_are_never_side_by_side(emulation: Emulation) -> None:
    backend = emulation.backend
    text = "__kernel void one(__global float *x, const ulong x_offset) { x[x_offset + get_global_id(0)] = 1; }"
    kernel = emulation.backend.runtime.programs.build("one.cl", text).kernel("one")
    launches = [
        CudaLaunch(backend.runtime, kernel, [Tensor(0)], (_SIZE,), (_SIZE,), waits=waits) for waits in (False, True)
    ]
    x = filled(emulation, 0)
    assert [b.is_small for b in backend.record([partial(launch, x) for launch in launches]).bound] == [True, False]


def test_a_workspace_takes_no_more_than_its_size_of_a_block(emulation: Emulation) -> None:
    """Temporaries of a launch start where a block of memory starts, in which other values follow."""
    backend = emulation.backend
    block = emulation.harness.upload(np.zeros(64, np.float32))
    text = "__kernel void one(__global float *x) { x[get_global_id(0)] = 1; }"
    kernel = backend.runtime.programs.build("one.cl", text).kernel("one")
    launch = CudaLaunch(backend.runtime, kernel, [Workspace(0)], (_SIZE,), (_SIZE,))
    sequence = LaunchSequence([launch], (4 * _SIZE,))
    behind, inside = (Ref(block.handle, _SPEC, start) for start in (_SIZE, _SIZE - 1))
    commands = backend.record(
        [
            partial(sequence, block.handle),
            partial(backend.fill, 2.0, behind),
            partial(backend.fill, 3.0, inside),
            partial(launch, block.handle),  # of unknown size
        ]
    )
    commands.submit([])
    assert dependencies(emulation) == [(), (), (0, 1), (2,)]
    assert list(emulation.harness.download(block)[:12]) == [1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 2]


def test_dependencies_follow_slots_to_memory_of_other_operands(emulation: Emulation) -> None:
    backend, library = emulation.backend, emulation.library
    x, y, out, other = (filled(emulation, v) for v in (1, 2, 0, 0))
    slot = BindingSlot()
    slot.handle = out.handle
    moved = Ref(slot, _SPEC, 0)
    commands = backend.record([partial(backend.binary, "add", x, x, moved), partial(backend.binary, "add", y, y, y)])
    commands.submit([slot])
    assert dependencies(emulation) == [(), ()]
    y_value = 4.0
    for target, rebuilt, after in ((other, 0, ()), (y, 1, (0,)), (out, 1, ()), (y, 1, (0,)), (other, 0, (0,))):
        slot.handle = target.handle
        with library.logged() as calls:
            commands.submit([slot])
        assert calls.count("cuGraphCreate") == rebuilt
        gc.collect()
        assert dependencies(emulation) == [(), after]
        y_value = 4.0 if target is y else 2 * y_value
        assert (emulation.harness.download(target) == (4 if target is y else 2)).all()
        assert (emulation.harness.download(y) == y_value).all()
