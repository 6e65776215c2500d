"""Buffer assignment: values of a graph that share memory, because one aliases or replaces the other.

An allocation is memory that stores one value after another. A view shares the allocation of its operand. A result may overwrite
an operand that is dead by then, if the op allows it, and a new value may overwrite the input that it updates. An operand of a
concatenation is computed in place, if it has the layout of its region in the result. A copied slice of a dead value aliases the
slice, and so do its in-place updates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.layout import Spec, contiguous, extent, place
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait

D = TypeVar("D")
"""Device type: `Device`, or None if devices are not distinguished."""


@dataclass(slots=True)
class BufferAllocation(Generic[D]):
    """Memory that is live from step `first` to step `last`; -1 is the first step of an input."""

    spec: Spec
    device: D
    first: int
    last: int
    source: int | None = None
    """Input of the graph that it stores at first; None for other memory."""
    output: bool = False
    """True if it stores an output of the graph at the end."""


@dataclass(slots=True)
class BufferAssignment(Generic[D]):
    """Allocation of every value. A slice is an (allocation number, offset in elements) pair."""

    allocations: list[BufferAllocation[D]]
    slices: list[tuple[int, int] | None]
    """Slice of each value; None for numbers."""
    aliases: list[tuple[int, ...]]
    """Operand that each output of each node overwrites, or -1; empty for nodes that need no call."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    """(value, input) pairs to be copied after the last node, in order."""

    def slice_of(self, value: int) -> tuple[int, int]:
        """Return the slice of a tensor. Raises TypeError for a number."""
        location = self.slices[value]
        if location is None:
            raise TypeError(f"%{value} is a number; expected a tensor")
        return location

    def holding_only(self, graph: Graph, outputs: frozenset[int]) -> frozenset[int]:
        """Return the allocations that store outputs at the given positions only, and no input."""
        only: dict[int, bool] = {}
        for position, value in enumerate(graph.outputs):
            number, _ = self.slice_of(value)
            only[number] = only.get(number, True) and position in outputs
        return frozenset(n for n, inside in only.items() if inside and self.allocations[n].source is None)


def assign_buffers(graph: Graph, device_of: Callable[[int], D], settled: int = -1) -> BufferAssignment[D]:
    """Assign an allocation to every value of `graph`; `device_of` returns the device of a value, or None for every value.

    No input is overwritten by step `settled` or earlier.
    """
    return _Assigner(graph, device_of, settled).run()


class _Assigner(Generic[D]):
    def __init__(self, graph: Graph, device_of: Callable[[int], D], settled: int) -> None:
        self._graph = graph
        self._device_of = device_of
        self._settled = settled
        count = len(graph.specs)
        self._root = [graph.root(v) for v in range(count)]
        """Value whose allocation stores each value, through views and concatenations."""
        self._offset = [graph.root_offset(v) for v in range(count)]
        self._last = [-1] * count
        """Last step that reads each root, through any view."""
        self._idle = {k for k, node in enumerate(graph.nodes) if graph.is_view(node)}
        """Nodes that need no call: views, concatenations of operands computed in place, and copies that alias their source."""
        self._kept = {*graph.live_outs, *graph.updates.values()}
        """Values that outlive the graph."""
        self._replaced: dict[int, int] = {}
        """Operand position that each in-place update of an aliased copy overwrites, by value."""
        self._end = len(graph.nodes)
        self._allocations: list[BufferAllocation[D]] = []
        self._of = [-1] * count
        """Allocation of each root; -1 if not assigned yet."""
        self._written: dict[int, int] = {}
        """Step that computes the new value of each input in the input's memory, if the memory is free by then."""
        self._holds: list[int] = []
        """Root that each allocation currently stores."""

    def run(self) -> BufferAssignment[D]:
        graph = self._graph
        self._join_operands()
        self._leave_copies_in_place()
        self._find_last_reads()
        for i in range(graph.inputs):
            if graph.is_tensor(i):
                self._allocate(i, -1, source=i)
        late = {
            self._root[v]: i for i, v in graph.updates.items() if graph.producer_index(self._root[v]) > self._settled
        }
        targets = {root: i for root, i in late.items() if self._fits_input(graph.updates[i], i)}
        self._written = {i: k for root, i in targets.items() if (k := graph.producer_index(root)) >= 0}
        aliases: list[tuple[int, ...]] = []
        for k, node in enumerate(graph.nodes):
            outputs = enumerate(() if k in self._idle else node.outputs)
            aliases.append(tuple([self._settle(k, node, i, v, targets.get(v)) for i, v in outputs]))
        copies = [(v, i) for i, v in graph.updates.items() if not self._is_in_place(v, i)]
        for v in graph.outputs:
            self._allocations[self._of[self._root[v]]].output = True
        slices = [(self._of[r], self._offset[v]) if self._of[r] >= 0 else None for v, r in enumerate(self._root)]
        return BufferAssignment(self._allocations, slices, aliases, copies)

    # --- concatenations ---------------------------------------------------------------------------------------------

    def _join_operands(self) -> None:
        """Compute operands of concatenations in place in the result, if they have the layout of their region."""
        live_out = {self._root[v] for v in self._graph.live_outs}
        for k, node in enumerate(self._graph.nodes):
            if Trait.JOINS_OPERANDS not in node.op.traits or k in self._idle:
                continue
            if node.outputs[0] in self._graph.updates.values() or not node.device.capabilities.suballocation:
                continue
            regions = self._regions(node, live_out)
            if not regions:
                continue
            self._idle.add(k)
            for v, root in enumerate(self._root):
                if root in regions:
                    self._root[v] = node.outputs[0]
                    self._offset[v] += regions[root]

    def _regions(self, node: Node, live_out: set[int]) -> dict[int, int]:
        """Return the roots that a concatenation joins and their offsets in it; empty unless all can be computed in place."""
        graph = self._graph
        (out,) = graph.output_specs(node)
        specs = tuple(graph.spec_of(x) for x in node.inputs)
        regions: dict[int, int] = {}
        for piece in node.op.regions(specs, (out,), node.bound) if node.op.regions is not None else ():
            if piece.source is None:
                return {}
            x = node.value(piece.source)
            root, spec, target = self._root[x], graph.tensor(x), place(out, piece.target)
            whole = graph.tensor(root)
            fits = _same_layout(spec, target) and spec.size == whole.size and spec.size > 0
            fits &= target.aligned or not whole.aligned
            movable = root not in live_out and root not in regions and self._is_computed(root)
            if not (fits and movable and self._device_of(root) is self._device_of(node.outputs[0])):
                return {}
            regions[root] = piece.target.offset - self._offset[x]
        return regions

    def _is_computed(self, root: int) -> bool:
        """Return whether a call computes `root` and its memory can be chosen freely."""
        k = self._graph.producer_index(root)
        return k >= 0 and k not in self._idle and not self._graph.nodes[k].replaces

    # --- copies of parts --------------------------------------------------------------------------------------------

    def _leave_copies_in_place(self) -> None:
        """Alias copied slices of a dead value, and in-place updates of them, with the slices."""
        parts: set[int] = set()
        for k, node in enumerate(self._graph.nodes):
            if node.op is OPS["copies"] and self._are_parts(k, node):
                self._idle.add(k)
                for x, v in zip(node.reads, node.outputs, strict=True):
                    self._move(v, x)
                parts |= set(node.outputs)
            for v, position in zip(node.outputs, node.replaces, strict=bool(node.replaces)):
                if position >= 0 and (x := node.value(position)) in parts and self._may_replace(k, node, x, v):
                    self._move(v, x)
                    self._replaced[v] = position
                    parts.add(v)

    def _move(self, value: int, target: int) -> None:
        """Alias a value and all its views with the value `target`."""
        root, offset = self._root[target], self._offset[target]
        for v, own in enumerate(self._root):
            if own == value:
                self._root[v] = root
                self._offset[v] += offset

    def _are_parts(self, k: int, node: Node) -> bool:
        """Return whether copies are of disjoint slices of one computed value that no later node reads."""
        graph = self._graph
        roots = {self._root[x] for x in node.reads}
        (root, *others) = roots
        if others or not self._is_computed(root) or not node.device.capabilities.suballocation:
            return False
        if self._outlives([v for v, own in enumerate(self._root) if own == root], k):
            return False
        ends = sorted((self._offset[x], self._offset[x] + graph.tensor(x).size) for x in node.reads)
        separate = all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
        pairs = [(graph.tensor(x), graph.tensor(v)) for x, v in zip(node.reads, node.outputs, strict=True)]
        same = all(x.is_contiguous and v.is_contiguous and x.dtype is v.dtype for x, v in pairs)
        aligned = all(x.aligned or not v.aligned for x, v in pairs)
        return separate and same and aligned and set(node.outputs).isdisjoint(graph.updates.values())

    def _may_replace(self, k: int, node: Node, x: int, value: int) -> bool:
        """Return whether a value can overwrite the slice that it replaces: the slice is read once by node `k` and not later."""
        graph = self._graph
        views = [v for v in range(graph.inputs, len(graph.specs)) if graph.is_tensor(v) and graph.root(v) == x]
        if self._outlives(views, k) or sum(v in views for v in node.reads) > 1 or value in graph.updates.values():
            return False
        return self._root[value] == value and _fits(graph.tensor(value), graph.tensor(x))

    def _outlives(self, views: Sequence[int], k: int) -> bool:
        """Return whether any of `views` is read after step `k`, or outlives the graph."""
        return any(v in self._kept or any(u > k for u in self._graph.user_indices(v)) for v in views)

    # --- allocations ------------------------------------------------------------------------------------------------

    def _find_last_reads(self) -> None:
        graph = self._graph
        for k, node in enumerate(graph.nodes):
            for v in node.outputs:
                self._last[self._root[v]] = max(self._last[self._root[v]], k)
            for v in node.reads:
                self._last[self._root[v]] = k
        for v in graph.live_outs:
            self._last[self._root[v]] = self._end

    def _allocate(self, root: int, first: int, source: int | None = None) -> None:
        spec = self._graph.tensor(root)
        _, high = extent(spec.shape, spec.strides)
        if high >= spec.size:
            spec = contiguous(spec.dtype, (high + 1,))
        self._of[root] = len(self._allocations)
        self._allocations.append(BufferAllocation(spec, self._device_of(root), first, self._last[root], source))
        self._holds.append(root)

    def _fits_input(self, value: int, source: int) -> bool:
        """Return whether a value fills its allocation and can be computed in the memory of the input that it updates."""
        graph, root = self._graph, self._root[value]
        is_whole = root == value or (self._offset[value] == 0 and _fills(graph.tensor(value), graph.tensor(root)))
        return is_whole and _fills(graph.tensor(value), graph.tensor(source))

    def _is_in_place(self, value: int, source: int) -> bool:
        root = self._root[value]
        number = self._of[root]
        held = self._allocations[number].source == source and self._holds[number] == root
        return held and self._fits_input(value, source)

    def _settle(self, k: int, node: Node, position: int, value: int, target: int | None) -> int:
        """Assign an allocation to an output of node `k`. Returns the operand that it overwrites exactly, or -1.

        `target` is the input that the output updates, if there is one.
        """
        root = self._root[value]
        if root != value:
            if self._of[root] < 0:
                self._allocate(root, k)
            return self._replaced.get(value, -1)
        if target is not None and self._of[target] >= 0 and self._is_free(self._of[target], k):
            self._take_over(self._of[target], value)
            return -1
        for operand in self._candidates(node, position):
            if self._may_overwrite(k, node, operand, value, target):
                self._take_over(self._of[self._root[node.value(operand)]], value)
                return operand
        self._allocate(value, k)
        return -1

    def _candidates(self, node: Node, position: int) -> list[int]:
        """Return the operands that an output may overwrite, the best first."""
        if node.replaces:
            return [node.replaces[position]] if node.replaces[position] >= 0 else []
        if Trait.POINTWISE in node.op.traits or _is_pointwise_group(node):
            return [i for i, x in enumerate(node.inputs) if self._has_memory(x)]
        if node.op is OPS["foreach_elementwise"]:
            return self._at_same_position(node, position)
        return []

    def _at_same_position(self, node: Node, position: int) -> list[int]:
        """Return the operands at an output's position in the lists, except where another operand shares their memory."""
        lists, count = node.bound["lists"], node.bound["count"]
        if position >= count * len(node.bound["results"]):
            return []  # sums of all tensors
        own = range(position % count, lists * count, count)
        others = {self._root[x.index] for i, x in enumerate(node.inputs) if isinstance(x, Value) and i not in own}
        return [i for i in own if self._has_memory(node.inputs[i]) and self._root[node.value(i)] not in others]

    def _has_memory(self, x: object) -> bool:
        return isinstance(x, Value) and self._of[self._root[x.index]] >= 0

    def _may_overwrite(self, k: int, node: Node, operand: int, value: int, target: int | None) -> bool:
        """Return whether `value` can overwrite an operand of its own node without loss."""
        graph, x = self._graph, node.value(operand)
        root = self._root[x]
        number = self._of[root]
        allocation = self._allocations[number]
        spec, own = graph.tensor(value), graph.tensor(x)
        whole = self._offset[x] == 0 and _fills(spec, graph.tensor(root))
        if not whole or not _fits(spec, own) or self._last[root] != k or self._holds[number] != root:
            return False
        if allocation.source is not None:
            # Only an input that the graph updates in the end may be overwritten, and only by values that are dead by then:
            # the memory must be free for the final value.
            if k <= self._settled or allocation.source not in graph.updates:
                return False
            if target is not None and target != allocation.source:
                return False
            written = self._written.get(allocation.source, self._end)
            if target is None and (self._last[value] > written or k == written or self._last[value] == self._end):
                return False
        elif target is not None:
            return False
        if any(self._of[v] == number for v in node.outputs):
            return False
        same = [i for i, y in enumerate(node.inputs) if isinstance(y, Value) and self._root[y.index] == root]
        # Pointwise ops read each element before they write it, so equal operands may alias; updates still need old elements.
        return same == [operand] or (not node.replaces and all(graph.tensor(node.value(i)) == own for i in same))

    def _is_free(self, number: int, k: int) -> bool:
        """Return whether no step `k` or later reads the value stored in an allocation."""
        return self._last[self._holds[number]] < k

    def _take_over(self, number: int, value: int) -> None:
        self._of[value] = number
        self._holds[number] = value
        allocation = self._allocations[number]
        allocation.last = max(allocation.last, self._last[value])


def _same_layout(a: Spec, b: Spec) -> bool:
    """Return whether two specs have the same dtype, shape and strides (of axes longer than 1)."""
    strides = zip(a.shape, a.strides, b.strides, strict=False)
    return a.dtype is b.dtype and a.shape == b.shape and all(n == 1 or s == t for n, s, t in strides)


def _fits(spec: Spec, own: Spec) -> bool:
    """Return whether a value of `spec` can overwrite a value of `own`: kernels use vector stores for aligned results."""
    return spec[:3] == own[:3] and (own.aligned or not spec.aligned)


def _fills(spec: Spec, own: Spec) -> bool:
    """Return whether two specs, possibly of different shapes, describe exactly the same memory."""
    dense = spec.dtype is own.dtype and spec.size == own.size and spec.is_contiguous and own.is_contiguous
    return _fits(spec, own) or (dense and (own.aligned or not spec.aligned))


def _is_pointwise_group(node: Node) -> bool:
    """Return whether a node is a fused group of pointwise ops without a final reduction."""
    return node.op is OPS["fused_elementwise"] and node.bound["reduction"] is None
