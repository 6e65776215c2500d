"""Runs small pointwise ops that do the same to many tensors as one op.

A model has a hundred biases, gains and step counts. Each is cast, scaled or counted in less time than a launch takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.compile.ir.graph import Graph, Node, Operand, operand_key
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.passes.regather import is_temporary
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.hal.ops.traits import Trait

_MAX_SIZE = 1 << 16
"""Elements of the largest tensor that takes part: a launch costs less than the work for larger ones."""
_MAX_KEPT = 1 << 22
"""Elements of the largest copy of an input of the graph that takes part on a GPU if it is read several times, as weights in
half precision are by both passes. A copy occupies memory until it is read last, so it costs little to make all copies first."""
_FEWEST = 2
"""Ops that one launch runs sooner than launches of their own."""


def fuse_lists(graph: Graph) -> Graph:
    """Group small pointwise ops with equal parameters, on devices that have kernels for groups."""
    return _Grouping(graph).run()


class _Member(NamedTuple):
    """A node as part of a group."""

    node: Node
    lists: tuple[Operand, ...]
    """The operands: tensors of the shape of the results, then numbers and tensors without axes."""


_Shape = Literal["elements", "no axes", "number"]


class _Call(NamedTuple):
    """The common properties of a group; the key of the group."""

    steps: tuple[Any, ...]
    results: tuple[int, ...]
    kinds: tuple[tuple[DType, _Shape], ...]
    """The dtypes and shapes of the operands of each member."""
    place: Any
    """The device and settings, and the region of a checkpoint."""
    text: str
    """The steps as text, because in Python 1 == 1.0 == True and 0.0 == -0.0."""
    early: bool
    """True if all members can run at the first one's place: their operands are available, and unchanged."""


class _Grouping:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriter = GraphRewriter(graph)
        self._calls: dict[int, tuple[_Call, _Member]] = {}
        """By the position of the node."""
        for k, node in enumerate(graph.nodes):
            found = self._call(node)
            if found is not None:
                self._calls[k] = found
        self._let_others_wait()
        self._sizes = Counter(call for call, _ in self._calls.values())
        self._waiting: dict[_Call, list[_Member]] = {}
        self._views: dict[_Call, list[Node]] = {}
        """Views of results that wait, in order."""
        self._of: dict[int, _Call] = {}
        """The group in which a value waits."""

    def run(self) -> Graph:
        if all(size < _FEWEST for size in self._sizes.values()):
            return self._graph
        early: dict[_Call, list[_Member]] = {}
        for call, member in self._calls.values():
            if call.early:
                early.setdefault(call, []).append(member)
        done: set[_Call] = set()
        for k, node in enumerate(self._graph.nodes):
            found = self._calls.get(k)
            if found is None or self._sizes[found[0]] < _FEWEST:
                self._pass(node)
            elif not found[0].early:
                self._wait(*found)
            elif found[0] not in done:
                done.add(found[0])
                self._emit(found[0], early[found[0]])
        for call in list(self._waiting):
            self._flush(call)
        return self._rewriter.finish()

    # --- members ----------------------------------------------------------------------------------------------------

    def _call(self, node: Node) -> tuple[_Call, _Member] | None:
        """The group that a node may be part of; None if it is not a small pointwise op on tensors without gaps."""
        graph = self._graph
        group = node.op is OPS["fused_elementwise"]
        if not (group and node.bound["reduction"] is None) and Trait.POINTWISE not in node.op.traits:
            return None
        outputs = [graph.tensor(v) for v in node.outputs]
        shape = outputs[0].shape
        early = all(map(self._stays, node.reads))
        if not can_fuse(node) or not 0 < outputs[0].size <= self._limit(node, early):
            return None
        if any(s.shape != shape or not s.is_contiguous for s in outputs):
            return None
        kinds: list[tuple[int, DType, _Shape]] = []
        for i, x in enumerate(node.inputs):
            spec = graph.spec_of(x)
            if isinstance(spec, Spec) and spec.shape == shape and spec.is_contiguous:
                kinds.append((i, spec.dtype, "elements"))
            elif isinstance(spec, Spec) and spec.shape == ():
                kinds.append((i, spec.dtype, "no axes"))
            elif isinstance(spec, ScalarSpec):
                kinds.append((i, spec.dtype, "number"))
            else:
                return None
        kinds.sort(key=lambda kind: kind[2] != "elements")
        if kinds[0][2] != "elements":
            return None
        order = [i for i, _, _ in kinds]
        steps, results = _renumbered(*_steps_of(node), order)
        key = tuple((dtype, kind) for _, dtype, kind in kinds)
        call = _Call(steps, results, key, node.place.merge_key, repr(steps), early)
        return call, _Member(node, tuple(node.inputs[i] for i in order))

    def _limit(self, node: Node, early: bool) -> int:
        """Return the elements of the largest result with which a node takes part."""
        kept = early and node.device.type is not DeviceType.CPU and all(self._reads(v) > 1 for v in node.outputs)
        return _MAX_KEPT if kept else _MAX_SIZE

    def _reads(self, value: int) -> int:
        """Return how often a value is read, also through views of it."""
        views = [n.outputs[0] for n in self._graph.users(value) if self._graph.is_view(n)]
        return self._graph.use_count(value) - len(views) + sum(map(self._reads, views))

    def _stays(self, value: int) -> bool:
        """Return whether a value is there for the whole step, in an input of the graph or in a gathered tensor."""
        root = self._graph.root(value)
        made = self._graph.producer(root)
        return root < self._graph.inputs or (
            made is not None and Trait.COLLECTIVE in made.op.traits and not is_temporary(made)
        )

    def _let_others_wait(self) -> None:
        """Take those members out of early groups whose operands are not there yet at the place of the first one."""
        first: dict[_Call, int] = {}
        for k, (call, member) in self._calls.items():
            place = first.setdefault(call, k)
            if call.early and any(self._graph.producer_index(v) >= place for v in member.node.reads):
                self._calls[k] = call._replace(early=False), member

    # --- order ------------------------------------------------------------------------------------------------------

    def _wait(self, call: _Call, member: _Member) -> None:
        """Let a node wait for others of its group, until a result of theirs is needed."""
        self._flush_what_is_read(member.node)
        self._waiting.setdefault(call, []).append(member)
        self._of |= dict.fromkeys(member.node.outputs, call)

    def _pass(self, node: Node) -> None:
        """Write a node that is in no group. Views of a deferred node do the same."""
        if self._graph.is_view(node) and (call := self._of.get(node.value(0))) is not None:
            self._views.setdefault(call, []).append(node)
            self._of[node.outputs[0]] = call
            return
        self._flush_what_is_read(node)
        self._rewriter.keep(node)

    def _flush_what_is_read(self, node: Node) -> None:
        for v in node.reads:
            if v in self._of:
                self._flush(self._of[v])

    def _flush(self, call: _Call) -> None:
        """Write a group whose results are needed, and the views of them."""
        members, views = self._waiting.pop(call), self._views.pop(call, [])
        self._of = {v: c for v, c in self._of.items() if c != call}
        self._emit(call, members)
        for node in views:
            self._rewriter.keep(node)

    def _emit(self, call: _Call, members: list[_Member]) -> None:
        """Write a group as one op, or node by node where it is small or the device has no kernel."""
        rewriter, op, first = self._rewriter, OPS["foreach_elementwise"], members[0].node
        columns = list(zip(*(m.lists for m in members), strict=True))
        own = [i for i, column in enumerate(columns) if call.kinds[i][1] == "elements" or not _is_shared(column)]
        shared = [i for i in range(len(columns)) if i not in own]
        operands = (*(x for i in own for x in columns[i]), *(columns[i][0] for i in shared))
        inputs = [rewriter.operand(x) for x in operands]
        params = (len(own), len(members), *_renumbered(call.steps, call.results, [*own, *shared]), ())
        if len(members) < _FEWEST or not rewriter.has_kernel(op, inputs, params, first.place):
            for m in members:
                rewriter.keep(m.node)
            return
        values = rewriter.add(op, inputs, params, first.place)
        old = [v for column in zip(*(m.node.outputs for m in members), strict=True) for v in column]
        for v, value in zip(old, values, strict=True):
            rewriter.replace_all_uses(v, value)


def _is_shared(column: tuple[Operand, ...]) -> bool:
    """Return whether all members of a group have one and the same operand in a position."""
    return len({operand_key(x) for x in column}) == 1


def _steps_of(node: Node) -> tuple[tuple[GroupStep, ...], tuple[int, ...]]:
    """The steps and results of a node, whose operands are numbered first."""
    if node.op is OPS["fused_elementwise"]:
        return node.bound["steps"], node.bound["results"]
    count = len(node.inputs)
    return ((node.op.name, tuple(range(count)), node.params),), (count,)


def _renumbered(
    steps: Sequence[GroupStep], results: Sequence[int], order: Sequence[int]
) -> tuple[tuple[GroupStep, ...], tuple[int, ...]]:
    """The steps and results after a permutation of the operands: operand `order[i]` becomes operand `i`."""
    number = {old: new for new, old in enumerate(order)}
    found = tuple(
        (name, tuple(None if a is None else number.get(a, a) for a in arguments), params)
        for name, arguments, params in steps
    )
    return found, tuple(number.get(r, r) for r in results)
