"""A graph under construction: its inputs turn up one by one while nodes are recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.result import InputSource, StepInput
from polyhal.hal.compile.capture.scopes import Scopes
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph, Node, NodeOrigin, Operand, Value, infer_results
from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.core.settings.state import settings
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.protocol import InputSpec

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.ops.schema import ParamValues


class IncrementalGraph:
    """Numbers values in order of appearance; `finish` renumbers them so that inputs come first, as `Graph` requires."""

    def __init__(self, scopes: Scopes) -> None:
        self.sources: dict[int, InputSource] = {}
        """Where each input comes from, by value."""
        self._scopes = scopes
        self._specs: list[Any] = []
        self._nodes: list[Node] = []
        self._scalars: dict[int, Value] = {}
        """Values of runtime scalars, by identity; `sources` keeps the scalars alive."""
        self._step_inputs = 0

    def add_input(self, source: InputSource, spec: InputSpec) -> int:
        """Append an input. Returns its value."""
        value = len(self._specs)
        self._specs.append(spec)
        self.sources[value] = source
        return value

    def add_step_input(self, spec: Spec, device: Device) -> tuple[int, int]:
        """Append an input that is passed with each run. Returns its position among those, and its value."""
        position = self._step_inputs
        self._step_inputs += 1
        return position, self.add_input(StepInput(position, spec, device), spec)

    def scalar(self, x: RuntimeScalar) -> Value:
        """The value of a runtime scalar, which becomes an input at its first use."""
        value = self._scalars.get(id(x))
        if value is None:
            value = self._scalars[id(x)] = Value(self.add_input(x, ScalarSpec(dispatch.scalar_dtype(x.value))))
        return value

    def add_node(
        self,
        op: OpDef,
        operands: tuple[Operand, ...],
        params: ParamValues,
        device: Device,
        replaces: tuple[int, ...] = (),
    ) -> tuple[tuple[int, ...], int | None]:
        """Append a node. Returns its outputs, and for a view its offset in its base."""
        specs = tuple(self.spec_of(x) for x in operands)
        bound = op.bind(params)
        results, view = infer_results(op, specs, bound, device.stand_ins)
        for spec in results:
            device.check_dtype(spec.dtype, op.name)
        first = len(self._specs)
        self._specs.extend(results)
        outputs = tuple(range(first, first + len(results)))
        scopes = self._scopes
        origin = NodeOrigin(device, settings.result_key, scopes.module, scopes.recomputation, scopes.location())
        values = _with_one_nan(tuple(bound.values()))
        self._nodes.append(Node(op, _with_one_nan(operands), values, outputs, origin, replaces))
        return outputs, None if view is None else view.offset

    def set_parameter(self, value: int, name: str, content: Any) -> bool:
        """Change a parameter of the node that makes a value. Returns False if no node has it."""
        for position in range(len(self._nodes) - 1, -1, -1):
            node = self._nodes[position]
            if value in node.outputs:
                bound = node.bound
                if name in bound:
                    self._nodes[position] = node._replace(params=tuple((bound | {name: content}).values()))
                return name in bound
        return False

    def spec_of(self, operand: Operand) -> Any:
        """The spec of an operand; None for an absent one."""
        if isinstance(operand, Value):
            return self._specs[operand.index]
        return None if operand is None else ScalarSpec(dispatch.scalar_dtype(operand))

    def spec(self, value: int) -> Spec:
        """The spec of a value that is a tensor."""
        result: Spec = self._specs[value]
        return result

    @property
    def nodes(self) -> list[Node]:
        """The nodes so far."""
        return self._nodes

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    def finish(self, outputs: Iterable[int]) -> tuple[Graph, dict[int, int]]:
        """The graph with these outputs, and the new number of each value."""
        order = [*self.sources, *[v for n in self._nodes for v in n.outputs]]
        number = {old: new for new, old in enumerate(order)}
        graph = Graph([self._specs[v] for v in self.sources])
        for n in self._nodes:
            operands = tuple(Value(number[x.index]) if isinstance(x, Value) else x for x in n.inputs)
            renumbered = n._replace(inputs=operands, outputs=tuple(number[v] for v in n.outputs))
            graph.append(renumbered, [self._specs[v] for v in n.outputs])
        graph.outputs = tuple(number[v] for v in outputs)
        graph.frozen = {number[v]: s for v, s in self.sources.items() if isinstance(s, CapturedConstant) and s.frozen}
        return graph, number


def _with_one_nan(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace each NaN by one object: tuples compare elements by identity first, so that recordings of NaN are equal."""
    nans = [isinstance(x, float) and x != x for x in values]
    return tuple(math.nan if is_nan else x for x, is_nan in zip(values, nans, strict=True)) if any(nans) else values
