"""Values computed again instead of kept: less memory for more work, until a step fits a budget.

Where the most memory is needed, some values only wait for a reader much later, as activations wait for the backward
pass. Such a value can be let go after its early readers and made again before the late ones, from what is still there then:
by its own node, or by a chain of nodes when their inputs are gone as well. The same kernels run on the same values, so
results stay the same to the last bit. Random numbers are no exception: they follow from their seed and offset.

Source: Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174; the choice by bytes won for each
unit of work follows Kirisame et al., "Dynamic tensor rematerialization", arXiv:2006.09616.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import Value
from polyhal.hal.passes.simplify.dead_code import remove_dead_code
from polyhal.hal.scheduler.liveness import needed
from polyhal.hal.scheduler.schedule import graph_roots, slots

_LONGEST_CHAIN = 40
_FLOPS_PER_BYTE = 8
"""How many operations take as long as moving a byte: a cautious figure, which the order of choices hardly depends on."""
_MOST_FAILURES = 12
"""Rounds in a row that bring nothing, after which the graph is taken as it is."""
_UNREPEATABLE = frozenset({"scatter_add", "scatter_rows", "transfer"})
"""Ops whose sums may run in another order each time, and copies that devices wait for."""


def recomputed(graph: Graph, budget: int, inside: frozenset[int] = frozenset()) -> Graph:
    """A graph whose own values need at most `budget` bytes at each step, or as little as is found.

    Rounds go on as long as each brings the steps beyond the budget closer to it. `inside` is as for `lifetimes.needed`.
    """
    best, missing = graph, _missing(graph, budget, inside)
    barred: set[int] = set()
    failures = 0
    while missing[0] and failures < _MOST_FAILURES:
        round_ = _Round(best, budget, barred, inside)
        choices = round_.choices()
        if not choices:
            break
        found = round_.applied(choices)
        now = _missing(found, budget, inside)
        if now < missing:
            best, missing, failures = found, now, 0
            barred = set()
        else:
            failures += 1
            barred |= {c.value for c in choices[:1]}
    return best


def _missing(graph: Graph, budget: int, inside: frozenset[int]) -> tuple[int, int]:
    """How far the fullest step is beyond the budget, and all steps together."""
    beyond = (needed(graph, inside) - budget).clip(min=0)
    return int(beyond.max(initial=0)), int(beyond.sum())


@dataclass(slots=True)
class _Choice:
    """A value to make again before node `at`, by the nodes of `chain`, in order."""

    value: int
    at: int
    chain: list[int]
    won: int
    """Bytes less at the fullest step."""
    work: float


@dataclass(slots=True)
class _Chain:
    nodes: set[int] = field(default_factory=set)
    kept: dict[int, int] = field(default_factory=dict)
    """Roots that have to be kept for it, beyond the fullest step, with their bytes."""


class _Round:
    """One look at a graph: at its fullest step, which values might be made again?"""

    def __init__(self, graph: Graph, budget: int, barred: set[int], inside: frozenset[int]) -> None:
        self._graph = graph
        self._barred = barred
        self._roots, self._views = graph_roots(graph)
        self._maker = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
        self._readers: dict[int, list[int]] = {}
        for k, node in enumerate(graph.nodes):
            if not self._views[k]:
                for r in {self._roots[v] for v in slots(node)}:
                    self._readers.setdefault(r, []).append(k)
        self._kept = {self._roots[v] for v in (*graph.outputs, *graph.updates.values())}
        self._updated = {i: self._maker.get(v, -1) for i, v in graph.updates.items()}
        usage = needed(graph, inside)
        self._fullest = int(usage.argmax())
        self._excess = int(usage[self._fullest]) - budget

    def choices(self) -> list[_Choice]:
        """Enough of the best ones to meet the budget at the fullest step, none of which disturbs another."""
        found = [c for c in map(self._choice, range(self._graph.inputs, len(self._graph.specs))) if c is not None]
        found.sort(key=lambda c: (c.work / c.won, c.value))
        taken: list[_Choice] = []
        touched: set[int] = set()
        won = 0
        for choice in found:
            uses = {self._roots[v] for k in choice.chain for v in slots(self._graph.nodes[k])} | {choice.value}
            if won >= self._excess:
                break
            if uses & {t.value for t in taken} or choice.value in touched:
                continue
            taken.append(choice)
            touched |= uses
            won += choice.won
        return taken

    def _bytes(self, value: int) -> int:
        spec = self._graph.specs[value]
        return spec.nbytes if isinstance(spec, Spec) else 0

    def _last(self, root: int) -> int:
        if root in self._kept:
            return len(self._graph.nodes)
        readers = self._readers.get(root)
        return readers[-1] if readers else -1

    def _choice(self, value: int) -> _Choice | None:
        """How `value` would be made again, if it waits across the fullest step and can be."""
        k, size = self._fullest, self._bytes(value)
        if self._roots[value] != value or value in self._kept or not size or value in self._barred:
            return None
        readers = self._readers.get(value, ())
        late = next((r for r in readers if r > k), None)
        if late is None or self._maker[value] >= k or k in readers:
            return None
        chain = _Chain()
        if not self._extend(chain, self._maker[value], late):
            return None
        won = size - sum(chain.kept.values())
        nodes = sorted(chain.nodes)
        if won <= 0:
            return None
        return _Choice(value, late, nodes, won, sum(self._work(self._graph.nodes[n]) for n in nodes))

    def _extend(self, chain: _Chain, k: int, late: int) -> bool:
        """Add node `k`, and what it reads and is gone before node `late`, to a chain; whether that is possible."""
        node = self._graph.nodes[k]
        if not _is_repeatable(node) or len(chain.nodes) >= _LONGEST_CHAIN:
            return False
        chain.nodes.add(k)
        for v in slots(node):
            root = self._roots[v]
            if root < self._graph.inputs:
                if root in self._updated and self._updated[root] < late:
                    return False
                continue
            if self._maker[root] in chain.nodes:
                self._add_views(chain, v)
                continue
            if self._last(root) >= min(self._fullest, late):
                continue
            if root in chain.kept:
                continue
            trial = _Chain(set(chain.nodes), dict(chain.kept))
            if self._bytes(root) * 8 > self._bytes(node.outputs[0]) and self._extend(trial, self._maker[root], late):
                chain.nodes, chain.kept = trial.nodes, trial.kept
                self._add_views(chain, v)
            else:
                chain.kept[root] = self._bytes(root)
        return True

    def _add_views(self, chain: _Chain, value: int) -> None:
        """Have the views between a value and its root made again, too."""
        while self._roots[value] != value:
            k = self._maker[value]
            chain.nodes.add(k)
            value = slots(self._graph.nodes[k])[0]

    def _work(self, node: Node) -> float:
        """What a node costs, in bytes moved."""
        specs = tuple(self._graph.spec_of(x) for x in node.inputs)
        outputs = tuple(self._graph.specs[v] for v in node.outputs)
        moved = sum(s.nbytes for s in (*specs, *outputs) if isinstance(s, Spec))
        if node.op.flops is None:
            return float(moved)
        flops = node.op.flops(specs, outputs, node.op.bind(node.params))  # type: ignore[arg-type]
        return moved + flops / _FLOPS_PER_BYTE

    def applied(self, choices: list[_Choice]) -> Graph:
        """The graph in which the chosen values are made again."""
        rewriting = Rewriting(self._graph)
        due: dict[int, list[_Choice]] = {}
        for choice in choices:
            due.setdefault(choice.at, []).append(choice)
        for k, node in enumerate(self._graph.nodes):
            for choice in due.get(k, ()):
                self._make_again(rewriting, choice)
            rewriting.keep(node)
        # A value that is made again before anyone reads it need not be made the first time.
        return remove_dead_code(rewriting.finish())

    def _make_again(self, rewriting: Rewriting, choice: _Choice) -> None:
        """Add a choice's chain, and let the later nodes read its value and that value's views from it."""
        made: dict[int, Value] = {}
        views = [
            self._maker[v]
            for v in range(self._graph.inputs, len(self._graph.specs))
            if self._roots[v] == choice.value and v != choice.value and self._maker[v] < choice.at
        ]
        for k in (*choice.chain, *(k for k in views if k not in choice.chain)):
            node = self._graph.nodes[k]
            operands = tuple(
                made.get(x.index) or rewriting.operand(x) if isinstance(x, Value) else x for x in node.inputs
            )
            specs = [self._graph.specs[v] for v in node.outputs]
            outputs = rewriting.new.add(node.op, operands, node.params, specs, node.origin)  # type: ignore[arg-type]
            made.update(zip(node.outputs, map(Value, outputs), strict=True))
        for v, slot in made.items():
            if self._roots[v] == choice.value:
                rewriting.equate(v, slot)


def _is_repeatable(node: Node) -> bool:
    return not (node.replaces or node.op.mutates or node.op.name in _UNREPEATABLE)
