"""Groups neighbouring pointwise ops of one shape, and a reduction that follows them, into one op that runs as one kernel.

Values between two kernels are written to memory and read back; inside a group they stay in registers. A group must not depend
on its own results by way of ops outside of it.

Large sums that are accumulated in place, as the gradients of micro-batches are, stay separate: one kernel for all terms
would keep every term in memory until the last one is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value, operand_key, postorder
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.passes.fuse.recompute import late_nodes
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.hal.ops.traits import Trait

_MAX_STEPS = 48
_MAX_REPEATED = 4
"""Cheap steps that may be repeated for each element of a larger shape to save a launch."""
_MAX_HELD = 1 << 20
"""Bytes of an accumulated sum above which its terms are not kept for one kernel."""
_MAX_TENSORS = 12
"""Inputs and results of a group in all. Some devices allow few kernel arguments, and registers are scarce."""


def fuse_elementwise(graph: Graph) -> Graph:
    """Group pointwise ops, on devices that have kernels for groups."""
    return _Grouping(graph).run()


@dataclass(slots=True, eq=False)
class _Group:
    """Positions of nodes that run as one, in order. `shape` is None for a single node that is not pointwise."""

    nodes: list[int]
    shape: tuple[int, ...] | None
    needs: set[int] = field(default_factory=set)
    """The other groups that it reads from."""


class _Grouping:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._group_of: list[int] = []
        """The group of each node: a key of `_groups`."""
        self._groups: dict[int, _Group] = {}
        self._late = late_nodes(graph)

    def run(self) -> Graph:
        """Form groups, then write the graph in an order in which every group follows those that it needs."""
        for k, node in enumerate(self._graph.nodes):
            self._place(k, node)
        rewriter = GraphRewriter(self._graph)
        for group in self._ordered():
            if len(group.nodes) == 1 or not self._emit(rewriter, group):
                for k in group.nodes:
                    rewriter.keep(self._graph.nodes[k])
        return rewriter.finish()

    # --- grouping ---------------------------------------------------------------------------------------------------

    def _place(self, k: int, node: Node) -> None:
        """Give a node a group of its own, and join that with the groups that it reads from where possible."""
        graph = self._graph
        producers = [graph.producer_index(v) for v in node.reads]
        sources = [self._group_of[p] for p in producers if p >= 0]
        fusible = Trait.POINTWISE in node.op.traits and can_fuse(node)
        shape = graph.tensor(node.outputs[0]).shape if fusible else None
        self._group_of.append(k)
        self._groups[k] = _Group([k], shape, set(sources))
        if fusible:
            if k in self._late:
                sources = [self._group_of[p] for p in producers if p in self._late]
            for source in sorted(set(sources), reverse=True):
                self._join(self._group_of[self._groups[source].nodes[0]] if source in self._groups else source, k)
        elif sources and may_end(node):
            v = node.value(0)
            before = self._groups[sources[0]]
            if before.shape is not None and graph.use_count(v) == 1 and self._results(before.nodes) == [v]:
                self._merge(sources[0], k, ends=True)

    def _join(self, a: int, b: int) -> None:
        """Merge two groups where shape, device, size and order allow it."""
        b = self._group_of[b]
        if a == b or a not in self._groups:
            return
        first, second = self._groups[a], self._groups[b]
        if first.shape is None or second.shape is None:
            return
        if not self._graph.nodes[first.nodes[0]].merges_with(self._graph.nodes[second.nodes[0]]):
            return
        if first.shape != second.shape and not self._is_worth_repeating(first, second):
            return
        if any(self._holds_terms(k, first) for k in second.nodes):
            return
        nodes = sorted((*first.nodes, *second.nodes))
        outside = (first.needs | second.needs) - {a, b}
        if len(nodes) > _MAX_STEPS or any(self._depends(u, {a, b}) for u in outside):
            return
        if len(self._tensors(nodes)) + len(self._results(nodes)) <= _MAX_TENSORS:
            self._merge(a, b)

    def _holds_terms(self, k: int, before: _Group) -> bool:
        """Return whether node `k` adds a later term to a large sum that `before` accumulates in place."""
        node = self._graph.nodes[k]
        if not self._accumulates(node) or self._graph.tensor(node.outputs[0]).nbytes <= _MAX_HELD:
            return False
        total, term = (self._graph.producer_index(node.value(i)) for i in (0, 1))
        return total in before.nodes and self._accumulates(self._graph.nodes[total]) and term > before.nodes[-1]

    @staticmethod
    def _accumulates(node: Node) -> bool:
        """Return whether a node adds or multiplies a tensor into its first operand."""
        commutes = Trait.COMMUTATIVE in node.op.traits
        return commutes and node.replaces == (0,) and len(node.reads) == len(node.inputs)

    def _is_worth_repeating(self, first: _Group, second: _Group) -> bool:
        """Return whether to compute a group of a smaller shape again for each element of the larger group, its only user."""
        graph = self._graph
        nodes = [graph.nodes[k] for k in first.nodes]
        if len(nodes) > _MAX_REPEATED or any(Trait.CHEAP not in n.op.traits for n in nodes):
            return False
        if first.shape is None or second.shape is None or not broadcasts(first.shape, second.shape):
            return False
        reads = self._reads((*first.nodes, *second.nodes))
        return all(graph.use_count(v) == reads[v] for n in nodes for v in n.outputs)

    def _merge(self, a: int, b: int, *, ends: bool = False) -> None:
        """Make group `b` part of `a`."""
        first, second = self._groups[a], self._groups.pop(b)
        first.nodes = sorted((*first.nodes, *second.nodes))
        first.needs = (first.needs | second.needs) - {a, b}
        first.shape = None if ends else second.shape
        for k in second.nodes:
            self._group_of[k] = a
        for group in self._groups.values():
            if b in group.needs:
                group.needs.discard(b)
                group.needs.add(a)

    def _depends(self, group: int, on: set[int]) -> bool:
        """Return whether a group reads, directly or through others, from one of `on`."""
        first = min(self._groups[u].nodes[0] for u in on)
        pending, seen = [group], {group}
        while pending:
            needs = self._groups[pending.pop()].needs
            if needs & on:
                return True
            # A group whose nodes all precede the first one of `on` cannot depend on it.
            later = {u for u in needs - seen if self._groups[u].nodes[-1] > first}
            seen |= later
            pending += later
        return False

    def _reads(self, nodes: Sequence[int]) -> Counter[int]:
        """How often each value is read by these nodes."""
        return Counter(v for k in nodes for v in self._graph.nodes[k].reads)

    def _tensors(self, nodes: Sequence[int]) -> set[int]:
        """Tensors from outside that the nodes read."""
        outputs = {v for k in nodes for v in self._graph.nodes[k].outputs}
        return {v for v in self._reads(nodes).keys() - outputs if self._graph.is_tensor(v)}

    def _results(self, nodes: Sequence[int]) -> list[int]:
        """Values of the nodes that something else reads."""
        inside = self._reads(nodes)
        outputs = [v for k in nodes for v in self._graph.nodes[k].outputs]
        return [v for v in outputs if self._graph.use_count(v) > inside[v]]

    # --- writing ----------------------------------------------------------------------------------------------------

    def _ordered(self) -> Iterator[_Group]:
        """Groups after those that they need, otherwise in the order of their last nodes."""
        done: set[int] = set()
        for number in sorted(self._groups, key=lambda u: self._groups[u].nodes[-1]):
            for ready in postorder(number, lambda u: sorted(self._groups[u].needs), done):
                yield self._groups[ready]

    def _emit(self, rewriter: GraphRewriter, group: _Group) -> bool:
        """Add a group as one op. Returns False where the device has no kernel for it."""
        nodes = [self._graph.nodes[k] for k in group.nodes]
        end = nodes.pop() if group.shape is None else None
        results = self._results(group.nodes[: len(nodes)])
        outputs = {v for n in nodes for v in n.outputs}
        operands: dict[Any, Operand] = {}
        for x in (x for n in nodes for x in n.inputs):
            if x is not None and not (isinstance(x, Value) and x.index in outputs):
                operands.setdefault(operand_key(x), x)
        numbers = {key: i for i, key in enumerate(operands)}
        steps = numbered_steps(nodes, numbers)
        inputs = [rewriter.operand(x) for x in operands.values()]
        reduction = None if end is None else (end.op.name, end.bound["axis"], end.bound["keepdims"])
        params = (steps, tuple(numbers[Value(v)] for v in results), reduction)
        op, origin = OPS["fused_elementwise"], nodes[0].place
        if not rewriter.has_kernel(op, inputs, params, origin):
            return False
        fused = rewriter.add(op, inputs, params, origin)
        for v, value in zip(results if end is None else end.outputs, fused, strict=True):
            rewriter.replace_all_uses(v, value)
        return True


def numbered_steps(nodes: Sequence[Node], numbers: dict[Any, int]) -> tuple[GroupStep, ...]:
    """Pointwise nodes as the steps of one op. `numbers` has those of all operands by key, and gets those of results.

    A reshape between them is no step: its result has the number of its operand.
    """
    steps: list[GroupStep] = []
    first = len(numbers)
    for node in nodes:
        arguments = tuple(None if x is None else numbers[operand_key(x)] for x in node.inputs)
        out = Value(node.outputs[0])
        if Trait.POINTWISE in node.op.traits:
            numbers[out] = first + len(steps)
            steps.append((node.op.name, arguments, node.params))
        else:
            numbers[out] = numbers[operand_key(node.inputs[0])]
    return tuple(steps)


def broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to another without changing it."""
    return len(small) <= len(large) and all(n in (1, m) for n, m in zip(reversed(small), reversed(large), strict=False))


def may_end(node: Node) -> bool:
    """Return whether a group may end with this node: a reduction over given axes."""
    return Trait.FUSIBLE_REDUCTION in node.op.traits and node.bound["axis"] is not None
