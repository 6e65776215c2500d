"""Rematerialization: recompute values instead of keeping them, trading work for memory, until a step fits a budget.

At the step of peak memory, some values have no consumer until much later, such as activations for the backward pass. Such a
value can be freed after its early consumers and recomputed before the late ones from values that are still live: by its own
node, or by a chain of nodes if their operands are dead as well. The same kernels run on the same values, so results agree to
the last bit. This includes random numbers, which are functions of their seed and offset.

Sources: Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174; the choice by bytes saved per unit of
work follows Kirisame et al., "Dynamic tensor rematerialization", arXiv:2006.09616.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code
from polyhal.hal.compile.scheduler.liveness import live_bytes
from polyhal.hal.compile.scheduler.schedule import live_out_roots
from polyhal.hal.layout import Spec
from polyhal.hal.ops.traits import Trait

_MAX_CHAIN = 40
"""Maximum number of nodes that recompute one value."""
_FLOPS_PER_BYTE = 8
"""Operations that take as long as moving a byte: a cautious figure, on which the order of candidates hardly depends."""
_MAX_FAILURES = 12
"""Number of consecutive rounds without progress after which the search stops."""
_MIN_SAVING = 8
"""Maximum ratio of result bytes to bytes of a dead operand for which the operand is recomputed, too, rather than kept."""


def rematerialize(graph: Graph, budget: int, inside: frozenset[int] = frozenset()) -> Graph:
    """Return a graph whose values need at most `budget` live bytes at each step, or as few as possible.

    `inside` is as for `live_bytes`. Rounds continue as long as each lowers the excess over the budget.
    """
    best, excess = graph, _excess(graph, budget, inside)
    barred: set[int] = set()
    failures = 0
    while excess[0] and failures < _MAX_FAILURES:
        search = _Round(best, budget, barred, inside)
        candidates = search.candidates()
        if not candidates:
            break
        result = search.applied(candidates)
        remaining = _excess(result, budget, inside)
        if remaining < excess:
            best, excess, failures = result, remaining, 0
            barred = set()
        else:
            failures += 1
            barred |= {c.value for c in candidates[:1]}
    return best


def _excess(graph: Graph, budget: int, inside: frozenset[int]) -> tuple[int, int]:
    """Return the bytes over the budget, at the peak and summed over all steps."""
    beyond = (live_bytes(graph, inside) - budget).clip(min=0)
    return int(beyond.max(initial=0)), int(beyond.sum())


@dataclass(slots=True)
class _Candidate:
    """A value to recompute before node `at` by the nodes of `chain`, in order."""

    value: int
    at: int
    chain: list[int]
    saved: int
    """Bytes saved at the peak."""
    work: float
    """Cost of the chain, in bytes moved."""


@dataclass(slots=True)
class _Chain:
    nodes: set[int] = field(default_factory=set)
    kept: dict[int, int] = field(default_factory=dict)
    """Roots that must be kept past the peak for the chain, with their bytes."""


class _Round:
    """One round of the search: candidates among the values that are live at the peak of a graph."""

    def __init__(self, graph: Graph, budget: int, barred: set[int], inside: frozenset[int]) -> None:
        self._graph = graph
        self._barred = barred
        self._users: dict[int, list[int]] = {}
        """Indices of the consumers of each root, without views."""
        for k, node in enumerate(graph.nodes):
            if not graph.is_view(node):
                for r in {graph.root(v) for v in node.reads}:
                    self._users.setdefault(r, []).append(k)
        self._live_out = live_out_roots(graph)
        self._updated_at = {i: graph.producer_index(v) for i, v in graph.updates.items()}
        live = live_bytes(graph, inside)
        self._peak = int(live.argmax())
        self._excess = int(live[self._peak]) - budget

    def candidates(self) -> list[_Candidate]:
        """Return the best candidates, enough to meet the budget at the peak. None of them needs a value that another frees."""
        values = range(self._graph.inputs, len(self._graph.specs))
        ranked = sorted((c for v in values if (c := self._candidate(v))), key=lambda c: (c.work / c.saved, c.value))
        chosen: list[_Candidate] = []
        touched: set[int] = set()
        saved = 0
        for candidate in ranked:
            nodes = (self._graph.nodes[k] for k in candidate.chain)
            reads = {self._graph.root(v) for n in nodes for v in n.reads} | {candidate.value}
            if saved >= self._excess:
                break
            if reads & {c.value for c in chosen} or candidate.value in touched:
                continue
            chosen.append(candidate)
            touched |= reads
            saved += candidate.saved
        return chosen

    def _bytes(self, value: int) -> int:
        spec = self._graph.specs[value]
        return spec.nbytes if isinstance(spec, Spec) else 0

    def _last_use(self, root: int) -> int:
        if root in self._live_out:
            return len(self._graph.nodes)
        users = self._users.get(root)
        return users[-1] if users else -1

    def _candidate(self, value: int) -> _Candidate | None:
        """Return the candidate for `value`, if it is live across the peak, not used at the peak, and can be recomputed."""
        graph, size = self._graph, self._bytes(value)
        if graph.root(value) != value or value in self._live_out or not size or value in self._barred:
            return None
        producer, users = graph.producer_index(value), self._users.get(value, ())
        late = next((u for u in users if u > self._peak), None)
        if late is None or producer >= self._peak or self._peak in users:
            return None
        chain = _Chain()
        if not self._extend(chain, producer, late):
            return None
        saved = size - sum(chain.kept.values())
        nodes = sorted(chain.nodes)
        if saved <= 0:
            return None
        return _Candidate(value, late, nodes, saved, sum(self._work(graph.nodes[n]) for n in nodes))

    def _extend(self, chain: _Chain, k: int, late: int) -> bool:
        """Add node `k` and producers of operands that are dead before node `late` to a chain. Returns whether it succeeds."""
        graph, node = self._graph, self._graph.nodes[k]
        if not _is_repeatable(node) or len(chain.nodes) >= _MAX_CHAIN:
            return False
        chain.nodes.add(k)
        for v in node.reads:
            root = graph.root(v)
            if root < graph.inputs:
                if root in self._updated_at and self._updated_at[root] < late:
                    return False
            elif graph.producer_index(root) in chain.nodes:
                self._add_views(chain, v)
            elif self._last_use(root) < min(self._peak, late) and root not in chain.kept:
                trial = _Chain(set(chain.nodes), dict(chain.kept))
                large = self._bytes(root) * _MIN_SAVING > self._bytes(node.outputs[0])
                if large and self._extend(trial, graph.producer_index(root), late):
                    chain.nodes, chain.kept = trial.nodes, trial.kept
                    self._add_views(chain, v)
                else:
                    chain.kept[root] = self._bytes(root)
        return True

    def _add_views(self, chain: _Chain, value: int) -> None:
        """Add the views between a value and its root to the chain."""
        while self._graph.root(value) != value:
            k = self._graph.producer_index(value)
            chain.nodes.add(k)
            value = self._graph.nodes[k].value(0)

    def _work(self, node: Node) -> float:
        """Return the cost of a node, in bytes moved."""
        specs = tuple(self._graph.spec_of(x) for x in node.inputs)
        outputs = self._graph.output_specs(node)
        moved = sum(s.nbytes for s in (*specs, *outputs) if isinstance(s, Spec))
        if node.op.flops is None:
            return float(moved)
        return moved + node.op.flops(specs, outputs, node.bound) / _FLOPS_PER_BYTE

    # --- writing ----------------------------------------------------------------------------------------------------

    def applied(self, candidates: list[_Candidate]) -> Graph:
        """Return the graph in which the chosen values are recomputed."""
        rewriter = GraphRewriter(self._graph)
        due: dict[int, list[_Candidate]] = {}
        for candidate in candidates:
            due.setdefault(candidate.at, []).append(candidate)
        for k, node in enumerate(self._graph.nodes):
            for candidate in due.get(k, ()):
                self._recompute(rewriter, candidate)
            rewriter.keep(node)
        # A value that is recomputed before anything reads it need not be computed the first time.
        return remove_dead_code(rewriter.finish())

    def _recompute(self, rewriter: GraphRewriter, candidate: _Candidate) -> None:
        """Add a candidate's chain, and redirect later uses of its value, and of views of it, to the recomputed one."""
        graph = self._graph
        views = [
            graph.producer_index(v)
            for v in range(graph.inputs, len(graph.specs))
            if graph.root(v) == candidate.value and v != candidate.value and graph.producer_index(v) < candidate.at
        ]
        copies: dict[int, Value] = {}
        for k in (*candidate.chain, *(k for k in views if k not in candidate.chain)):
            node = graph.nodes[k]
            operands = tuple(
                copies.get(x.index) or rewriter.operand(x) if isinstance(x, Value) else x for x in node.inputs
            )
            outputs = rewriter.new.add(node.op, operands, node.params, graph.output_specs(node), node.origin)
            copies.update(zip(node.outputs, map(Value, outputs), strict=True))
        for v, copy in copies.items():
            if graph.root(v) == candidate.value:
                rewriter.replace_all_uses(v, copy)


def _is_repeatable(node: Node) -> bool:
    return not (node.replaces or node.op.schema.mutates or Trait.UNREPEATABLE & node.op.traits)
