"""NumPy as a runtime that compiles graphs: programs call the reference of each op, and check the promises of the contract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from polyhal.backends.common.reference import members
from polyhal.backends.numpy.backend import CoreNumpyBackend, array, create
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined, GraphProgram, GraphValue, InputSpec, Launch, SimpleLaunch


class GraphBackend(CoreNumpyBackend):
    """Required members only for launches, and programs of any op but those in `refused`."""

    def __init__(
        self,
        refused: Collection[str] = (),
        *,
        limit: int = 0,
        selector: str = "contiguous_only",
        keeps_values: bool = False,
    ) -> None:
        """Decline graphs of more than `limit` ops; 0: none. `selector` chooses the NumPy device.

        With `keeps_values`, programs request workspace for all values of a graph.
        """
        model = create(selector)
        super().__init__(model.info)
        self.capabilities = model.capabilities
        self._memory = model._memory
        self._refused = frozenset(refused)
        self._limit = limit
        self._keeps_values = keeps_values
        self.programs: list[GraphProgram] = []
        self.runs = 0

    def claim_op(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Declined | None:
        return Declined(f"this runtime has no {op}") if op in self._refused or op not in OPS else None

    def compile_graph(self, graph: GraphProgram) -> Launch | Declined:
        if self._limit and len(graph.nodes) > self._limit:
            return Declined(f"{len(graph.nodes)} ops are more than {self._limit}")
        self.programs.append(graph)

        def run(*refs: Any) -> None:
            self.runs += 1
            first = len(graph.inputs)
            inputs, outputs = refs[:first], refs[first : first + len(graph.outputs)]
            check_memory(graph, inputs, outputs)
            self.execute(graph, inputs, outputs)

        values = [v.spec.nbytes for node in graph.nodes for v in node.results if isinstance(v.spec, Spec)]
        return SimpleLaunch(f"numpy {len(self.programs)}", run, (sum(values),) if self._keeps_values else ())

    def execute(self, graph: GraphProgram, inputs: Sequence[Any], outputs: Sequence[Ref]) -> None:
        """Run a program once; faulty devices override it."""
        arrays = [array(x).copy() if isinstance(x, Ref) else x for x in inputs]
        for out, result in zip(outputs, evaluate(graph, arrays), strict=True):
            array(out)[...] = result


def evaluate(graph: GraphProgram, inputs: Sequence[Any]) -> list[np.ndarray]:
    """Return the outputs of a graph, computed op by op."""
    values: dict[GraphValue, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        operands = [values[x] if isinstance(x, GraphValue) else x for x in node.operands]
        results = [np.empty(v.spec.shape, v.spec.dtype.numpy) for v in node.results]
        function: Callable[..., Any] = OPS[node.op].reference
        members.run_function(function, node.params, operands, results)
        values.update(zip(node.results, results, strict=True))
    return [values[v] for v in graph.outputs]


def check_memory(graph: GraphProgram, inputs: Collection[Any], outputs: Collection[Ref]) -> None:
    """Raise AssertionError if memory is not as the contract promises."""
    refs = list(inputs)
    for value, x in zip(graph.inputs, refs, strict=True):
        if isinstance(value.spec, Spec):
            assert isinstance(x, Ref)
            assert x.spec[:3] == value.spec[:3]
            assert x.is_contiguous
        else:
            assert isinstance(x, (bool, int, float)), f"{x!r} for a number"
    for value, out, donated in zip(graph.outputs, outputs, graph.donated, strict=True):
        assert out.spec[:3] == value.spec[:3]
        assert out.is_contiguous
        for position, x in enumerate(refs):
            if isinstance(x, Ref):
                same = x.handle is out.handle and x.offset == out.offset
                assert same if position == donated else not np.shares_memory(array(x), array(out))
