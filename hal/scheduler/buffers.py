"""Which values of a graph may lie in the same memory because one replaces the other: views, results in place, updates.

A storage is a piece of memory that one value after the other lives in. Views share the storage of what they view. A result
may take over the storage of an input that nobody reads any more, where the op allows that. The pieces of a concatenation
that are laid out as its parts are made in its storage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.layout import Spec, contiguous, extent, place
from polyhal.hal.ops.opdef import Value


@dataclass(slots=True)
class Storage:
    """`first` and `last` are the steps between which it is needed; an input's begins before step 0."""

    spec: Spec
    device: object
    first: int
    last: int
    source: int | None = None
    """The graph's input that lies in it at first."""
    output: bool = False
    """Whether it holds a result of the graph in the end."""


@dataclass(slots=True)
class Storages:
    """For each value its storage and the offset in it, in elements; for each node which outputs replace which inputs."""

    storages: list[Storage]
    of: list[tuple[int, int] | None]
    """None for numbers."""
    aliases: list[tuple[int, ...]]
    copies: list[tuple[int, int]] = field(default_factory=list)
    """(value, input) pairs to be copied after the last step, in order."""

    def holding(self, graph: Graph, outputs: frozenset[int]) -> frozenset[int]:
        """The storages that hold nothing in the end but those outputs of the graph, and no input at first."""
        found: dict[int, bool] = {}
        for output, value in enumerate(graph.outputs):
            place = self.of[value]
            assert place is not None
            found[place[0]] = found.get(place[0], True) and output in outputs
        return frozenset(n for n, only in found.items() if only and self.storages[n].source is None)


def assign(graph: Graph, device_of: Callable[[int], object]) -> Storages:
    """Storages for all values of `graph`; `device_of` says where a value lies."""
    return _Assignment(graph, device_of).run()


class _Assignment:
    def __init__(self, graph: Graph, device_of: Callable[[int], object]) -> None:
        self._graph = graph
        self._device_of = device_of
        count = len(graph.specs)
        self._root = list(range(count))
        self._offset = [0] * count
        self._last = [-1] * count
        """The last step that reads a root's value, through any view."""
        self._maker = [-1] * count
        self._done: set[int] = set()
        """Nodes that have nothing to do: views, and concatenations of what is made in place."""
        self._end = len(graph.nodes)
        self._storages: list[Storage] = []
        self._of: list[int] = [-1] * count
        """The storage of each root."""
        self._holds: list[int] = []
        """The root whose value a storage holds at the moment."""

    def run(self) -> Storages:
        graph = self._graph
        self._follow_views()
        self._join_parts()
        self._find_last_uses()
        for i in range(graph.inputs):
            spec = graph.specs[i]
            if isinstance(spec, Spec):
                self._new(i, spec, -1, i)
        wanted = {self._root[v]: i for i, v in graph.updates.items() if self._placed_alike(v, i)}
        aliases: list[tuple[int, ...]] = []
        for k, node in enumerate(graph.nodes):
            if k in self._done:
                aliases.append(())
                continue
            aliases.append(tuple(self._settle(k, node, i, v, wanted) for i, v in enumerate(node.outputs)))
        copies = [(v, i) for i, v in graph.updates.items() if not self._is_at(v, i)]
        for v in graph.outputs:
            storage = self._storages[self._of[self._root[v]]]
            storage.output = True
        of: list[tuple[int, int] | None] = [
            (self._of[r], self._offset[v]) if self._of[r] >= 0 else None for v, r in enumerate(self._root)
        ]
        return Storages(self._storages, of, aliases, copies)

    def _follow_views(self) -> None:
        for k, node in enumerate(self._graph.nodes):
            moved = self._graph.view_offset(node)
            source = node.inputs[0] if node.inputs else None
            for v in node.outputs:
                self._maker[v] = k
            if moved is not None and isinstance(source, Value):
                out = node.outputs[0]
                self._root[out] = self._root[source.index]
                self._offset[out] = self._offset[source.index] + moved
                self._done.add(k)

    def _join_parts(self) -> None:
        """Let what is concatenated lie in the result, where it is laid out as there."""
        kept = {self._root[v] for v in (*self._graph.outputs, *self._graph.updates.values())}
        for k, node in enumerate(self._graph.nodes):
            if node.op.name != "concat" or k in self._done or node.outputs[0] in self._graph.updates.values():
                continue
            assert node.origin is not None
            if not node.origin.device.capabilities.suballocation:
                continue
            parts = self._parts(node, kept)
            if not parts:
                continue
            self._done.add(k)
            for v, root in enumerate(self._root):
                if root in parts:
                    self._root[v] = node.outputs[0]
                    self._offset[v] += parts[root]

    def _parts(self, node: Node, kept: set[int]) -> dict[int, int]:
        """The roots that a concatenation puts together and their places in its result; none unless that is all it does."""
        out = self._graph.specs[node.outputs[0]]
        assert isinstance(out, Spec)
        assert node.op.assemble is not None
        specs = tuple(self._graph.spec_of(x) for x in node.inputs)
        found: dict[int, int] = {}
        for piece in node.op.assemble(specs, (out,), node.op.bind(node.params)):
            x = node.inputs[piece.source] if piece.source is not None else None
            if not isinstance(x, Value):
                return {}
            root, spec = self._root[x.index], specs[piece.source]  # type: ignore[index]
            whole = self._graph.specs[root]
            assert isinstance(spec, Spec)
            assert isinstance(whole, Spec)
            there = place(out, piece.target)
            lies = _lie_alike(spec, there) and spec.size == whole.size and spec.size > 0
            lies &= there.aligned or not whole.aligned
            made = self._maker[root] >= 0 and self._maker[root] not in self._done and root not in kept
            own = made and not self._graph.nodes[self._maker[root]].replaces and root not in found
            if not (lies and own and self._device_of(root) is self._device_of(node.outputs[0])):
                return {}
            found[root] = piece.target.offset - self._offset[x.index]
        return found

    def _find_last_uses(self) -> None:
        graph = self._graph
        for k, node in enumerate(graph.nodes):
            for v in node.outputs:
                self._last[self._root[v]] = max(self._last[self._root[v]], k)
            for x in node.inputs:
                if isinstance(x, Value):
                    self._last[self._root[x.index]] = k
        for v in (*graph.outputs, *graph.updates.values()):
            self._last[self._root[v]] = self._end

    def _new(self, root: int, spec: Spec, first: int, source: int | None = None) -> None:
        _, high = extent(spec.shape, spec.strides)
        if high >= spec.size:
            spec = contiguous(spec.dtype, (high + 1,))
        self._of[root] = len(self._storages)
        self._storages.append(Storage(spec, self._device_of(root), first, self._last[root], source))
        self._holds.append(root)

    def _placed_alike(self, value: int, source: int) -> bool:
        """Whether a value is laid out as the input that it replaces, so that it can be made in its place."""
        spec, own = self._graph.specs[value], self._graph.specs[source]
        return self._root[value] == value and _fits(spec, own)

    def _is_at(self, value: int, source: int) -> bool:
        root = self._root[value]
        storage = self._storages[self._of[root]]
        return storage.source == source and self._holds[self._of[root]] == root and self._placed_alike(value, source)

    def _settle(self, k: int, node: Node, position: int, value: int, wanted: dict[int, int]) -> int:
        """Find the storage of an output of node `k`. Returns the number of the operand that it replaces exactly, or -1."""
        root = self._root[value]
        spec = self._graph.specs[root]
        assert isinstance(spec, Spec)
        if root != value:
            if self._of[root] < 0:
                self._new(root, spec, k)
            return -1
        target = wanted.get(value)
        if target is not None and self._of[target] >= 0 and self._free_before(self._of[target], k):
            self._take_over(self._of[target], value)
            return -1
        for operand in self._candidates(node, position):
            x = node.inputs[operand]
            assert isinstance(x, Value)
            if self._may_replace(k, node, operand, value, target):
                self._take_over(self._of[self._root[x.index]], value)
                return operand
        self._new(value, spec, k)
        return -1

    def _candidates(self, node: Node, position: int) -> list[int]:
        """Operands that an output may replace, the best first."""
        if node.replaces:
            return [node.replaces[position]] if node.replaces[position] >= 0 else []
        if node.op.family == "elementwise" or (node.op.name == "fused_elementwise" and _keeps_shape(node)):
            return [i for i, x in enumerate(node.inputs) if isinstance(x, Value) and self._of[self._root[x.index]] >= 0]
        return []

    def _may_replace(self, k: int, node: Node, operand: int, value: int, target: int | None) -> bool:
        """Whether nothing is lost when `value` is written over an operand of its own node."""
        x = node.inputs[operand]
        assert isinstance(x, Value)
        root = self._root[x.index]
        number = self._of[root]
        storage = self._storages[number]
        spec, own = self._graph.specs[value], self._graph.specs[x.index]
        whole = self._offset[x.index] == 0 and _fits(spec, self._graph.specs[root])
        if not whole or not _fits(spec, own) or self._last[root] != k or self._holds[number] != root:
            return False
        if storage.source is not None:
            # An input's memory may be written only where the graph replaces it in the end, and by nothing that is kept
            # for long: the final value must find it free.
            if storage.source not in self._graph.updates or (target is not None and target != storage.source):
                return False
            if target is None and self._last[value] == self._end:
                return False
        elif target is not None:
            return False
        if any(self._of[v] == number for v in node.outputs):
            return False
        same = [i for i, y in enumerate(node.inputs) if isinstance(y, Value) and self._root[y.index] == root]
        return same == [operand] or all(self._graph.specs[node.inputs[i].index] == own for i in same)  # type: ignore[union-attr]

    def _free_before(self, number: int, k: int) -> bool:
        """Whether what a storage holds is read by no step from `k` on."""
        return self._last[self._holds[number]] < k

    def _take_over(self, number: int, value: int) -> None:
        self._of[value] = number
        self._holds[number] = value
        storage = self._storages[number]
        storage.last = max(storage.last, self._last[value])


def _lie_alike(a: Spec, b: Spec) -> bool:
    """Whether elements of the same indices lie at the same distances."""
    steps = zip(a.shape, a.strides, b.strides, strict=False)
    return a.dtype is b.dtype and a.shape == b.shape and all(n == 1 or s == t for n, s, t in steps)


def _fits(spec: object, own: object) -> bool:
    """Whether a value of one spec can be made where one of another lies: kernels move aligned results in vectors."""
    if not isinstance(spec, Spec) or not isinstance(own, Spec):
        return False
    return spec[:3] == own[:3] and (own.aligned or not spec.aligned)


def _keeps_shape(node: Node) -> bool:
    """Whether a fused group ends without a reduction."""
    return node.op.bind(node.params)["reduction"] is None
