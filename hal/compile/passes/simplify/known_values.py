"""Values that are equal in every run of a graph, computed on their devices while the graph is optimised."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.state import settings
from polyhal.hal.device import Device
from polyhal.hal.launch_descriptions import RecordsOnly
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait

_TRANSFER = OPS["transfer"]


class KnownValues:
    """The values of a graph that depend on no element of an input, such as sums over no elements.

    They are computed at the first use; not while a step is captured.
    """

    def __init__(self, graph: Graph, max_bytes: int, *, from_host_data: bool = False) -> None:
        """`max_bytes` bounds the memory for the results of one node: larger ones are not known.

        With `from_host_data`, inputs made from host data inside of the step are known, too.
        """
        self._graph = graph
        self._max_bytes = max_bytes
        self.results: set[int] = set()
        """Outputs of nodes whose operands are all known."""
        self._arrays: dict[int, Any] = {}
        """The values that are computed already."""
        constants = dict(enumerate(graph.constants, graph.inputs - len(graph.constants)))
        if from_host_data:
            constants |= {i: x for i, x in graph.frozen.items() if i not in graph.updates}
        for i, constant in constants.items():
            self._arrays[i] = dispatch.frontend.wrap(constant.device, constant.buffer, constant.ref)
        for node in graph.nodes:
            if self._is_known(node):
                self.results.update(node.outputs)

    def __contains__(self, v: int) -> bool:
        return v in self.results or v in self._arrays

    def _is_empty(self, v: int) -> bool:
        spec = self._graph.specs[v]
        return isinstance(spec, Spec) and not spec.size

    def array(self, v: int) -> Any:
        """Return the array of a known value."""
        for node in self._not_computed(v):
            self._compute(node)
        return self._arrays[v]

    def _is_known(self, node: Node) -> bool:
        if node.replaces or node.origin is None:
            return False
        if Trait.UNFOLDABLE & node.op.traits and node.op is not _TRANSFER:
            return False
        if node.op is OPS["full"] and not self._graph.live_outs.isdisjoint(node.outputs):
            return False  # Filling the result's memory is cheaper than copying a constant there.
        if any(map(self._is_empty, node.outputs)):
            return False  # Nothing computes it.
        if any(v not in self and not self._is_empty(v) for v in node.reads):
            return False
        if self._graph.is_view(node):
            return True
        return sum(spec.nbytes for spec in self._graph.output_specs(node)) <= self._max_bytes

    def _not_computed(self, v: int) -> list[Node]:
        """Return the nodes that a known value depends on and that have not run, in the graph's order.

        Iterative, because chains of constants may exceed Python's recursion limit.
        """
        found: set[int] = set()
        pending = [v]
        while pending:
            x = pending.pop()
            k = self._graph.producer_index(x)
            if x not in self._arrays and k not in found and not self._is_empty(x):
                found.add(k)
                pending.extend(self._graph.nodes[k].reads)
        return [self._graph.nodes[k] for k in sorted(found)]

    def _compute(self, node: Node) -> None:
        """Run a node whose operands are computed, as an eager call does."""
        inputs: tuple[Any, ...] = tuple(
            self._operand(x.index, node.device) if isinstance(x, Value) else x for x in node.inputs
        )
        if node.op is _TRANSFER:
            self._arrays[node.outputs[0]] = dispatch.EAGER.transfer(inputs[0], node.device)
            return
        device = Device("numpy") if isinstance(node.device.backend, RecordsOnly) else node.device
        if device is not node.device:
            inputs = tuple(x if _is_number(x) else dispatch.EAGER.transfer(x, device) for x in inputs)
        with settings.restored(node.place.settings):
            results = dispatch.EAGER.apply(node.op, inputs, node.params, device)
        made = results if isinstance(results, tuple) else (results,)
        if device is not node.device:
            made = tuple(dispatch.EAGER.transfer(x, node.device) for x in made)
        self._arrays.update(zip(node.outputs, made, strict=True))

    def _operand(self, v: int, device: Device) -> Any:
        """Return a value that is computed, or an empty one, which is made on the device."""
        if v not in self._arrays:
            spec = self._graph.tensor(v)
            buffer, ref = device.upload(np.empty(spec.shape, spec.dtype.numpy), spec.dtype)
            self._arrays[v] = dispatch.frontend.wrap(device, buffer, ref)
        return self._arrays[v]


def _is_number(x: Any) -> bool:
    return x is None or isinstance(x, (bool, int, float))
