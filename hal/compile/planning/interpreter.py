"""Interpreter of decompositions: runs a graph op by op."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Operand, Value
from polyhal.hal.core.execution.op_plan import Run
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.traits import Trait

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class _ViewStep(NamedTuple):
    """Creation of a view of another value."""

    source: int
    target: int
    spec: Spec
    offset: int
    release: tuple[int, ...]
    """Temporaries that are dead after the step."""


class _RunStep(NamedTuple):
    """Run of a node."""

    run: Run
    operands: tuple[Operand, ...]
    results: list[tuple[int, Spec, int, int]]
    """(value, spec, output that it is written to or -1, bytes of a temporary) of each result."""
    release: tuple[int, ...]


class GraphInterpreter:
    """Interpreter of a graph that runs its nodes in order.

    Temporaries come from the pool and are freed after their last use. A node writes to an output of the graph directly, unless
    the output replaces an input that is read later.
    """

    def __init__(
        self,
        graph: Graph,
        runs: Sequence[Run | None],
        aliases: tuple[int, ...],
        device: Device,
        in_place: Collection[int] = (),
    ) -> None:
        """Prepare the steps; `runs` has the run of each node, None for views.

        `aliases` has the input that each output replaces, or -1. The nodes with indices `in_place` overwrite that input.
        """
        self._take = device.pool.take
        self._copy = device.backend.copy
        self._inputs = graph.inputs
        self._size = len(graph.specs)
        last_use = [-1] * self._size
        for k, node in enumerate(graph.nodes):
            for x in node.inputs:
                if isinstance(x, Value):
                    last_use[graph.root(x.index)] = k
        direct, self._copied = _assign_outputs(graph, aliases, last_use, in_place)
        dead: list[list[int]] = [[] for _ in graph.nodes]
        for value in range(graph.inputs, self._size):
            if 0 <= last_use[value] < len(dead):
                dead[last_use[value]].append(value)
        self._steps: list[_ViewStep | _RunStep] = []
        for node, run, release in zip(graph.nodes, runs, map(tuple, dead), strict=True):
            if run is None:
                target, offset = node.outputs[0], graph.view_offset(node)
                assert offset is not None
                self._steps.append(_ViewStep(node.value(0), target, graph.tensor(target), offset, release))
            else:
                specs = zip(node.outputs, graph.output_specs(node), strict=True)
                results = [(v, spec, direct.get(v, -1), bucket(spec.nbytes)) for v, spec in specs]
                self._steps.append(_RunStep(run, node.inputs, results, release))

    def run(self, args: Sequence[Any], outs: Sequence[Ref]) -> None:
        """Run with `args` for the graph's inputs, and write its outputs to `outs`."""
        take = self._take
        values: list[Any] = [*args, *[None] * (self._size - self._inputs)]
        buffers: list[Any] = [None] * self._size
        for step in self._steps:
            if type(step) is _ViewStep:
                source, target, spec, offset, release = step
                base = values[source]
                values[target] = Ref(base.handle, spec, base.offset + offset)
            else:
                run, operands, results, release = step  # type: ignore[misc]
                refs = []
                for value, spec, position, size in results:
                    if position >= 0:
                        ref = outs[position]
                    else:
                        buffer = buffers[value] = take(size)
                        ref = Ref(buffer.handle, spec, 0)
                    values[value] = ref
                    refs.append(ref)
                run([values[x.index] if type(x) is Value else x for x in operands], refs)
            for value in release:
                buffers[value] = None
        for value, position in self._copied:
            if outs[position].size:
                self._copy(values[value], outs[position])


def nodes_in_place(graph: Graph, aliases: tuple[int, ...]) -> frozenset[int]:
    """Return nodes that may overwrite the input that their only result replaces: their first operand, not read later."""
    found = []
    for value, alias in zip(graph.outputs, aliases, strict=False):
        k = graph.producer_index(value)
        if alias < 0 or k < 0 or Trait.INPLACE not in graph.nodes[k].op.traits:
            continue
        node, spec = graph.nodes[k], graph.tensor(alias)
        if len(node.outputs) > 1:
            continue
        views = [v for v in range(len(graph.specs)) if graph.is_tensor(v) and graph.root(v) == alias]
        read_later = any(u > k for v in views for u in graph.user_indices(v))
        others = [x for x in node.inputs[1:] if isinstance(x, Value) and x.index in views]
        if node.inputs[0] == Value(alias) and graph.tensor(value)[:3] == spec[:3] and not (read_later or others):
            found.append(k)
    return frozenset(found)


def _assign_outputs(
    graph: Graph, aliases: tuple[int, ...], last_use: list[int], in_place: Collection[int]
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Return the output of each value that is written directly, and (value, output) pairs to copy at the end.

    `last_use` is extended for copied values.
    """
    direct: dict[int, int] = {}
    copied: list[tuple[int, int]] = []
    for position, value in enumerate(graph.outputs):
        producer = graph.producer_index(value)
        alias = aliases[position] if aliases else -1
        owns_memory = producer >= 0 and graph.root(value) == value and value not in direct
        is_dead = alias < 0 or last_use[alias] < producer + (producer in in_place)
        if owns_memory and is_dead:
            direct[value] = position
        else:
            copied.append((value, position))
            last_use[graph.root(value)] = len(graph.nodes)
    return direct, copied
