"""Detection of faults by the kit's checks of compiled graphs: each test plants one in a runtime that compiles graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from graph_backend import GraphBackend, evaluate

from polyhal.backends.numpy.backend import array
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, ScalarSpec
from polyhal.hal.protocol import Declined, GraphProgram
from polyhal.hal.testing import Scope, verify


class _KeepsNumbers(GraphBackend):
    """Compiles the numbers of the first run into the program."""

    def execute(self, graph: GraphProgram, inputs: Sequence[Any], outputs: Sequence[Ref]) -> None:
        first = self.__dict__.setdefault("first", {}).setdefault(id(graph), inputs)
        kept = [a if isinstance(v.spec, ScalarSpec) else b for v, a, b in zip(graph.inputs, first, inputs, strict=True)]
        super().execute(graph, kept, outputs)


class _WritesEarly(GraphBackend):
    """Writes each output as soon as it is computed, the last one first, over inputs that others still read."""

    def execute(self, graph: GraphProgram, inputs: Sequence[Any], outputs: Sequence[Ref]) -> None:
        views = [array(x) if isinstance(x, Ref) else x for x in inputs]
        for value, out in reversed(list(zip(graph.outputs, outputs, strict=True))):
            (result,) = evaluate(graph._replace(outputs=(value,)), views)
            array(out)[...] = result


class _IgnoresOffsets(GraphBackend):
    def execute(self, graph: GraphProgram, inputs: Sequence[Any], outputs: Sequence[Ref]) -> None:
        super().execute(graph, inputs, [Ref(x.handle, x.spec, 0) for x in outputs])


class _SwapsResults(GraphBackend):
    def execute(self, graph: GraphProgram, inputs: Sequence[Any], outputs: Sequence[Ref]) -> None:
        swapped = sorted(graph.outputs, key=lambda v: (v.spec.shape, -v.number))
        straight = sorted(graph.outputs, key=lambda v: (v.spec.shape, v.number))
        change = dict(zip(straight, swapped, strict=True))
        super().execute(graph._replace(outputs=tuple(change[v] for v in graph.outputs)), inputs, outputs)


class _RoundsExp(GraphBackend):
    def execute(self, graph: GraphProgram, inputs: Sequence[Any], outputs: Sequence[Ref]) -> None:
        super().execute(graph, inputs, outputs)
        for out in outputs:
            if any(node.op == "exp" for node in graph.nodes):
                array(out)[...] *= 1.001


class _ChangesInputs(GraphBackend):
    def execute(self, graph: GraphProgram, inputs: Sequence[Any], outputs: Sequence[Ref]) -> None:
        super().execute(graph, inputs, outputs)
        for x, _ in zip(inputs, range(1), strict=False):
            array(x)[...] = 0


class _ClaimsEverything(GraphBackend):
    def claim_op(self, op: str, *args: Any) -> Declined | None:
        return None


FAULTS: list[tuple[type[GraphBackend], str]] = [
    (_KeepsNumbers, "updates"),
    (_KeepsNumbers, "steps/random"),
    (_KeepsNumbers, "steps/training"),
    (_WritesEarly, "updates"),
    (_IgnoresOffsets, "ops/add"),
    (_SwapsResults, "steps/results"),
    (_RoundsExp, "ops/exp"),
    (_RoundsExp, "steps/errors"),
    (_ChangesInputs, "ops/permute"),
    (_ClaimsEverything, "unknown_op"),
]


@pytest.mark.parametrize(("fault", "case"), FAULTS, ids=[f"{f.__name__[1:]}-{c}" for f, c in FAULTS])
def test_planted_fault_of_programs_is_found(fault: type[GraphBackend], case: str) -> None:
    only = f"contract/graphs/{case}"
    sound = verify(Device.opened("graphs", GraphBackend()), only=only, scope=Scope(small=True))
    assert sound.ok, sound.failed[0].problem
    assert sound.passed
    assert not verify(Device.opened("graphs", fault()), only=only, scope=Scope(small=True)).ok


def test_a_runtime_of_graphs_passes() -> None:
    backend = GraphBackend()
    report = verify(Device.opened("graphs", backend), only="contract/graphs/*", scope=Scope(small=True))
    assert report.ok, report.failed[0].problem
    assert len(backend.programs) > 300
