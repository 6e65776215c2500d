"""Runs a graph op by op: how a decomposition executes in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.ir.graph import Graph, Value
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.memory.pool import bucket

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class Composite:
    """A graph with a run, or a view's offset, for every node.

    Temporaries come from the pool and go back after their last use. A node writes a graph output directly where that is
    safe: not when the output replaces an input in place that is still read later.
    """

    def __init__(
        self, graph: Graph, steps: Sequence[Callable[..., None] | int], aliases: tuple[int, ...], device: Device
    ) -> None:
        self._take = device.pool.take
        self._copy = device.backend.copy
        self._inputs = graph.inputs
        self._size = len(graph.specs)
        roots = list(range(self._size))
        last = [-1] * self._size
        for k, node in enumerate(graph.nodes):
            for x in node.inputs:
                if isinstance(x, Value):
                    last[roots[x.index]] = k
            if isinstance(steps[k], int):
                source = node.inputs[0]
                assert isinstance(source, Value)
                roots[node.outputs[0]] = roots[source.index]
        direct: dict[int, int] = {}
        self._finish: list[tuple[int, int]] = []
        for position, value in enumerate(graph.outputs):
            alias = aliases[position] if aliases else -1
            made = next((k for k, n in enumerate(graph.nodes) if value in n.outputs), None)
            safe = made is not None and roots[value] == value and value not in direct
            if safe and alias >= 0:
                safe = made is not None and last[alias] < made
            if safe:
                direct[value] = position
            else:
                self._finish.append((value, position))
                last[roots[value]] = len(graph.nodes)
        self._steps: list[tuple[Any, ...]] = []
        for k, node in enumerate(graph.nodes):
            step = steps[k]
            drop = tuple(i for i in range(graph.inputs, self._size) if last[i] == k)
            if isinstance(step, int):
                source = node.inputs[0]
                assert isinstance(source, Value)
                self._steps.append((None, source.index, node.outputs[0], graph.specs[node.outputs[0]], step, drop))
            else:
                made_specs = [graph.specs[i] for i in node.outputs]
                outs = [
                    (i, spec, direct.get(i, -1), bucket(spec.nbytes))
                    for i, spec in zip(node.outputs, made_specs, strict=True)
                    if isinstance(spec, Spec)
                ]
                self._steps.append((step, node.inputs, outs, drop))

    def run(self, args: Sequence[Any], outs: Sequence[Ref]) -> None:
        """Execute with `args` for the graph's inputs, writing its outputs to `outs`."""
        take = self._take
        values: list[Any] = list(args) + [None] * (self._size - self._inputs)
        buffers: list[Any] = [None] * self._size
        for step in self._steps:
            run = step[0]
            if run is None:
                _, source, target, spec, delta, drop = step
                base = values[source]
                values[target] = Ref(base.handle, spec, base.offset + delta)
            else:
                _, inputs, made, drop = step
                refs = []
                for index, spec, position, size in made:
                    if position >= 0:
                        ref = outs[position]
                    else:
                        buffers[index] = take(size)
                        ref = Ref(buffers[index].handle, spec, 0)
                    values[index] = ref
                    refs.append(ref)
                run([values[x.index] if type(x) is Value else x for x in inputs], refs)
            for i in drop:
                buffers[i] = None
        for value, position in self._finish:
            if outs[position].size:
                self._copy(values[value], outs[position])
