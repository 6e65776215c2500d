"""Replaces formulas written in plain ops by the fused op that computes them.

No op is named here: every op in `hal.ops` that declares a `Pattern` is matched by its own decomposition and its spellings.
Where a backward pass needs an inner value, the formula is kept. Results agree within the op's tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal.compile.ir.graph import Graph, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.passes.fuse.expressions import Expressions, Wildcard, kind_of, root_kind
from polyhal.hal.compile.passes.fuse.formulas import Formula, TracedCall, formulas
from polyhal.hal.compile.passes.fuse.matcher import Matcher
from polyhal.hal.compile.passes.fuse.replacement import Match, Replacements
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OpDef


def match_patterns(graph: Graph) -> Graph:
    """Replace formulas, the largest first, on devices that have kernels for them, until none is left."""
    known = formulas()
    while replacements := _Search(graph, known).replacements():
        graph = replacements.applied()
    return graph


class _Search:
    """One sweep over a graph, from its last node to its first: a formula is found at the node that makes its result."""

    def __init__(self, graph: Graph, known: Sequence[Formula]) -> None:
        self._graph = graph
        self._expressions = Expressions(graph)
        self._probe = GraphRewriter.probe(graph)
        self._replacements = Replacements(graph, in_place=True)
        self._calls: dict[tuple[Formula, Spec], list[TracedCall]] = {}
        self._bits = {kind: 1 << i for i, kind in enumerate(sorted({k for f in known for k in f.kinds}))}
        self._formulas: dict[str, list[tuple[int, Formula]]] = {}
        """By the kind of the last op: the kinds of all ops, as bits, and the formula."""
        for formula in known:
            bits = sum(self._bits[k] for k in formula.kinds)
            self._formulas.setdefault(formula.root, []).append((bits, formula))

    def replacements(self) -> Replacements:
        """The matches in the graph; no two share a node."""
        depends = self._kinds_behind()
        for node in reversed(self._graph.nodes):
            missing = ~depends[node.outputs[0]]
            candidates = [f for bits, f in self._formulas.get(root_kind(node), ()) if not bits & missing]
            if candidates and can_fuse(node):
                match = next(filter(None, (self._match(f, node.outputs[0]) for f in candidates)), None)
                if match is not None:
                    self._replacements.add(match)
        return self._replacements

    def _kinds_behind(self) -> list[int]:
        """For each value the kinds of ops on which it depends, as bits."""
        kinds = [0] * len(self._graph.specs)
        for node in self._graph.nodes:
            bits = self._bits.get(kind_of(node), 0)
            for v in node.reads:
                bits |= kinds[v]
            for v in node.outputs:
                kinds[v] = bits
        return kinds

    def _match(self, formula: Formula, result: int) -> Match | None:
        """The match of a formula that makes `result`. It is traced for the shapes at hand if its structure matches."""
        rough = Matcher(formula.example.expressions, self._expressions, exact=False)
        if not rough.matches(formula.example.results[0], result):
            return None
        key = formula, self._graph.tensor(result)
        if key not in self._calls:
            self._calls[key] = list(formula.calls(key[1]))
        for call in self._calls[key]:
            matcher = Matcher(call.expressions, self._expressions, exact=True)
            if matcher.matches(call.results[0], result):
                match = self._fused(formula.op, call, matcher, result)
                if match is not None:
                    return match
        return None

    def _fused(self, op: OpDef, call: TracedCall, matcher: Matcher, result: int) -> Match | None:
        """The match as an op, if the device has a kernel for it and no other node reads an inner value."""
        graph, values = self._graph, matcher.values
        if any(v is not None and v not in values for v in call.operands):
            return None
        inputs: list[Operand] = [None if v is None else Value(values[v]) for v in call.operands]
        params = tuple(_number(call.params[name], matcher) for name in op.schema.params)
        specs = self._probe.infer(op, inputs, params)
        operands = {x.index for x in inputs if isinstance(x, Value)}
        variables = range(call.expressions.graph.inputs)
        nodes = self._inside(result, operands | {values[p] for p in variables if p in values})
        # The op comes where the first of its results was computed. What was computed before all operands stays.
        ready = max((graph.producer_index(v) for v in operands), default=-1)
        results = {
            values[p]: i
            for i, (p, spec) in enumerate(zip(call.results, specs, strict=False))
            if p in values and graph.specs[values[p]] == spec and ready < graph.producer_index(values[p]) in nodes
        }
        if result not in results or not self._replacements.allows(nodes, results):
            return None
        position = min(graph.producer_index(v) for v in results)
        place = graph.nodes[position].place
        if not self._probe.has_kernel(op, inputs, params, place):
            return None

        def write(rewriter: GraphRewriter) -> None:
            outputs = rewriter.add(op, [rewriter.operand(x) for x in inputs], params, place)
            for v, i in results.items():
                rewriter.replace_all_uses(v, outputs[i])

        return Match(frozenset(nodes), position, write)

    def _inside(self, result: int, operands: set[int]) -> set[int]:
        """The positions of the nodes between operands and a result. A node that makes an operand stays."""
        graph = self._graph
        stay = {-1, *(graph.producer_index(v) for v in operands)}
        last = graph.producer_index(result)
        inside = {last}
        pending = list(graph.nodes[last].reads)
        while pending:
            k = graph.producer_index(pending.pop())
            if k not in stay and k not in inside:
                inside.add(k)
                pending += graph.nodes[k].reads
        return inside


def _number(param: Any, matcher: Matcher) -> Any:
    """A parameter of a match: the number that a wildcard matched."""
    return matcher.numbers[param.name] if isinstance(param, Wildcard) else param
