"""Gather the ops that backends claim for programs of their own, in as few programs as possible.

Each op has a level: the number of times that a path from the step's inputs to the op changes from claimed to other ops. The
claimed ops of one level and device depend on each other and on lower levels only, so they form a program; other ops of the same
level run before it. Views belong to the programs that read them, and remain outside for other readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node, NodeOrigin, Operand, Value
from polyhal.hal.compile.ir.program import PROGRAM, ProgramPart
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.compile.passes.decompose import inline_decomposition
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code
from polyhal.hal.compile.planning.decompose import decomposition
from polyhal.hal.compile.planning.program import declined_op, offered_params
from polyhal.hal.core.dispatch.bounds import is_debug
from polyhal.hal.core.settings.state import settings
from polyhal.hal.graphs import GraphNode, GraphValue
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.layout.host_call import HOST_CALL
from polyhal.hal.ops.lowering import HostConstant
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import Feature

if TYPE_CHECKING:
    from polyhal.hal.device import Device


def claim_programs(graph: Graph, declined: Collection[Device] = ()) -> Graph:
    """Return the graph with the claimed ops of each device in programs; no program on devices in `declined`."""
    devices = {n.device for n in graph.nodes if n.device.features & Feature.GRAPHS} - set(declined)
    if not devices:
        return graph
    claims = _Claims(devices)
    graph = _expanded(graph, claims)
    return remove_dead_code(_Partition(graph, claims).run())


class _Claims:
    """Answers of the backends, each asked once: layers repeat."""

    def __init__(self, devices: Collection[Device]) -> None:
        self._devices = devices
        self._answers: dict[Any, bool] = {}
        self._expandable: dict[Any, bool] = {}

    def claims(self, graph: Graph, node: Node) -> bool:
        """Return whether the backend claims a node as it is."""
        return self._is_offered(graph, node) and self._claimed(graph, node, node.device, node.place.settings)

    def expands(self, graph: Graph, node: Node) -> bool:
        """Return whether a node is not claimed, but all ops of its decomposition are."""
        if not self._is_offered(graph, node):
            return False
        device, setting = node.device, node.place.settings
        return not self._claimed(graph, node, device, setting) and self._is_expandable(graph, node, device, setting)

    def _is_offered(self, graph: Graph, node: Node) -> bool:
        if (
            node.device not in self._devices
            or node.op is HOST_CALL
            or Trait.CROSS_DEVICE in node.op.traits
            or Trait.COLLECTIVE in node.op.traits
        ):
            return False
        if node.op.index_range is not None and is_debug():
            return False  # eager launches check the indices
        return not any(_is_empty(graph.specs[v]) for v in (*node.reads, *node.outputs))

    def _claimed(self, graph: Graph, node: Node, device: Device, setting: tuple[Any, ...]) -> bool:
        key = (graph.signature(node), device, setting)
        if key not in self._answers:
            with settings.restored(setting):
                self._answers[key] = declined_op(device, graph, node) == ""
        return self._answers[key]

    def _is_expandable(self, graph: Graph, node: Node, device: Device, setting: tuple[Any, ...]) -> bool:
        if node.op.decompose is None or graph.is_view(node):
            return False
        key = (graph.signature(node), device, setting)
        if key not in self._expandable:
            with settings.restored(setting):
                specs = tuple(graph.spec_of(x) for x in node.inputs)
                parts = trace(decomposition(node.op, graph.output_specs(node)), specs, node.bound, device.stand_ins)
            self._expandable[key] = all(
                (n.op.strategy(HostConstant) is not None and not n.reads)  # a constant, which is made once
                or self._claimed(parts, n, device, setting)
                or self._is_expandable(parts, n, device, setting)
                for n in parts.nodes
            )
        return self._expandable[key]


def _is_empty(spec: object) -> bool:
    return isinstance(spec, Spec) and not spec.size


def _expanded(graph: Graph, claims: _Claims) -> Graph:
    """Return the graph with decompositions of the ops that a backend claims in parts only."""
    while any(expand := [claims.expands(graph, node) for node in graph.nodes]):
        rewriter = GraphRewriter(graph)
        for node, is_expanded in zip(graph.nodes, expand, strict=True):
            if is_expanded:
                inline_decomposition(rewriter, node)
            else:
                rewriter.keep(node)
        graph = rewriter.finish()
    return graph


class _Level(NamedTuple):
    """Level of a value, and whether a program computes it."""

    number: int
    claimed: bool

    def before(self, claimed: bool) -> int:
        """Return the lowest level of a node that reads the value."""
        return self.number + (self.claimed and not claimed)


class _Partition:
    """The programs of a graph."""

    def __init__(self, graph: Graph, claims: _Claims) -> None:
        self._graph = graph
        self._claimed = [claims.claims(graph, node) for node in graph.nodes]
        self._is_view = [graph.is_view(node) for node in graph.nodes]
        self._levels: list[_Level] = [_Level(0, False)] * len(graph.specs)
        """By value."""
        self._of_node: list[_Level] = []
        for k, node in enumerate(graph.nodes):
            levels = [self._levels[v] for v in node.reads]
            if self._is_view[k] and self._claimed[k]:
                level = levels[0]
            else:
                claimed = self._claimed[k]
                level = _Level(max((x.before(claimed) for x in levels), default=0), claimed)
            self._of_node.append(level)
            for v in node.outputs:
                self._levels[v] = level
        self._members: dict[tuple[int, Device], list[int]] = {}
        """Nodes of each program, without views."""
        for k, node in enumerate(graph.nodes):
            if self._claimed[k] and not self._is_view[k]:
                self._members.setdefault((self._of_node[k].number, node.device), []).append(k)
        self._outside = self._read_outside()
        self._rewriter = GraphRewriter(graph)

    def run(self) -> Graph:
        """Return the graph with the programs."""
        nodes = self._graph.nodes
        order: list[tuple[tuple[int, int, int], tuple[int, Device] | int]] = []
        for k in range(len(nodes)):
            level = self._of_node[k]
            if self._is_view[k] or not self._claimed[k]:
                order.append(((level.number, 2 * level.claimed, k), k))
        order += [((level, 1, members[0]), (level, device)) for (level, device), members in self._members.items()]
        for _, entry in sorted(order, key=lambda pair: pair[0]):
            if not isinstance(entry, int):
                self._write(self._members[entry])
            elif not self._claimed[entry] or nodes[entry].outputs[0] in self._outside:
                self._rewriter.keep(nodes[entry])
        return self._rewriter.finish()

    def _read_outside(self) -> set[int]:
        """Return the values that are read outside of the program that computes them, directly or through views."""
        graph = self._graph
        outside = set(graph.live_outs)
        for k in range(len(graph.nodes) - 1, -1, -1):
            node = graph.nodes[k]
            if not self._claimed[k]:
                outside.update(node.reads)
            elif self._is_view[k]:
                if node.outputs[0] in outside:
                    outside.add(node.value(0))
            else:
                for v in node.reads:
                    base = self._base(v)
                    if not self._is_inside(base, k):
                        outside.add(base)
        return outside

    def _base(self, value: int) -> int:
        """Return the operand of the chain of claimed views that ends in `value`; `value` itself if no view made it."""
        k = self._graph.producer_index(value)
        while k >= 0 and self._is_view[k] and self._claimed[k]:
            value = self._graph.nodes[k].value(0)
            k = self._graph.producer_index(value)
        return value

    def _is_inside(self, base: int, k: int) -> bool:
        """Return whether the program of node `k` computes a value."""
        producer = self._graph.producer_index(base)
        return (
            producer >= 0
            and self._claimed[producer]
            and not self._is_view[producer]
            and self._of_node[producer] == self._of_node[k]
            and self._graph.nodes[producer].device is self._graph.nodes[k].device
        )

    # --- programs ---------------------------------------------------------------------------------------------------

    def _write(self, members: list[int]) -> None:
        """Add the node of a program."""
        graph = self._graph
        inputs: dict[int, GraphValue] = {}
        steps: dict[int, GraphNode] = {}
        for k in members:
            for needed in self._steps(k, inputs, steps):
                steps[needed] = self._step(graph.nodes[needed], inputs)
        outputs = [v for k in members for v in graph.nodes[k].outputs if v in self._outside]
        values = tuple(GraphValue(v, graph.tensor(v)) for v in outputs)
        part = ProgramPart(tuple(inputs.values()), tuple(steps.values()), values)
        place = graph.nodes[members[0]].place._replace(module="")
        operands = tuple(self._input(x, place) for x in part.inputs)
        over = self._replaces(outputs, list(inputs))
        made = self._rewriter.new.add(PROGRAM, operands, (part,), [v.spec for v in values], place, over)
        for v, new in zip(outputs, made, strict=True):
            self._rewriter.replace_all_uses(v, Value(new))

    def _steps(self, k: int, inputs: dict[int, GraphValue], steps: dict[int, GraphNode]) -> Iterator[int]:
        """Yield the views that node `k` reads and that are not steps yet, then the node, and add its inputs."""
        graph = self._graph
        for v in graph.nodes[k].reads:
            base, views = self._base(v), []
            while v != base:
                views.append(graph.producer_index(v))
                v = graph.nodes[views[-1]].value(0)
            spec = graph.specs[base]
            if spec is not None and not self._is_inside(base, k):
                is_strided = isinstance(spec, Spec) and not spec.is_contiguous
                inputs.setdefault(base, GraphValue(base, contiguous(spec.dtype, spec.shape) if is_strided else spec))
            yield from (view for view in reversed(views) if view not in steps)
        yield k

    def _step(self, node: Node, inputs: Mapping[int, GraphValue]) -> GraphNode:
        graph = self._graph

        def operand(x: Operand) -> Any:
            if not isinstance(x, Value):
                return x
            spec = graph.specs[x.index]
            return inputs.get(x.index) or (None if spec is None else GraphValue(x.index, spec))

        with settings.restored(node.place.settings):
            params = offered_params(node.device, node)
        results = tuple(GraphValue(v, graph.tensor(v)) for v in node.outputs)
        return GraphNode(node.op.name, tuple(map(operand, node.inputs)), params, results)

    def _input(self, x: GraphValue, place: NodeOrigin) -> Operand:
        """Return the operand of the new graph for an input of a program, copied if it is strided."""
        operand = self._rewriter.operand(Value(x.number))
        if self._rewriter.new.spec_of(operand) == x.spec:
            return operand
        return self._rewriter.add(OPS["contiguous"], [operand], (), place)[0]

    def _replaces(self, outputs: list[int], inputs: list[int]) -> tuple[int, ...]:
        """Return for each output the position of the input that it updates, or -1; empty if there is none."""
        graph = self._graph
        updated = {graph.root(v): i for i, v in graph.updates.items()}
        positions = {v: position for position, v in enumerate(inputs)}
        found = tuple(positions.get(updated.get(v, -1), -1) for v in outputs)
        return found if any(position >= 0 for position in found) else ()
