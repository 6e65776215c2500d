"""A backward graph for the case that some results have no gradient.

A backward pass is linear in the gradients of the results. A value that depends on absent gradients only is absent, too, as
in an eager backward pass: its node is removed, and a sum is replaced by its other term. Zeros cannot replace absent
gradients, because 0 * inf is NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from polyhal.hal.compile.capture.result import CapturedGraph, StepInput
from polyhal.hal.compile.ir.graph import Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.ops.opdef import OPS


class PartialBackward(NamedTuple):
    """A backward graph without absent gradients."""

    captured: CapturedGraph
    results: list[int | None]
    """For each result of the whole graph, its position among the results of this one; None if it is absent."""


def without_absent(
    captured: CapturedGraph, seeds: int, absent: Collection[int], constants: Mapping[int, Collection[int]]
) -> PartialBackward:
    """Return the graph for runs without some of the gradients that are its first `seeds` arguments.

    The arguments at the positions `absent` are not read. `constants` are values that gradient rules made, such as zeros, with
    the positions of the gradients that led to the rule.
    """
    return _Pruning(captured, seeds, absent, constants).finish()


class _Pruning:
    def __init__(
        self, captured: CapturedGraph, seeds: int, absent: Collection[int], constants: Mapping[int, Collection[int]]
    ) -> None:
        self._captured = captured
        self._rewriter = GraphRewriter(captured.graph)
        positions = {i: s.position for i, s in enumerate(captured.sources) if isinstance(s, StepInput)}
        self._absent = {i for i, p in positions.items() if p in absent}
        """Values that depend on absent gradients only."""
        self._absent |= {value for value, led in constants.items() if set(led) <= set(absent)}
        self._present = {i for i, p in positions.items() if p < seeds and p not in absent}
        """Values that depend on gradients that are present."""
        self._present |= {
            v for v in constants if v not in self._absent and captured.graph.tensor(v).dtype.is_floating_point
        }

    def finish(self) -> PartialBackward:
        for node in self._captured.graph.nodes:
            self._visit(node)
        old, captured = self._captured.graph, self._captured
        kept = [i for i, v in enumerate(old.outputs) if v not in self._absent]
        number = {output: i for i, output in enumerate(kept)}
        pruned = replace(
            captured,
            graph=self._rewriter.finish([old.outputs[i] for i in kept]),
            results=[number[i] for i in captured.results if i in number],
            live_outs=[(x, number[i]) for x, i in captured.live_outs if i in number],
            memories=[captured.memories[i] for i in kept] if captured.memories else [],
        )
        places = {output: position for position, output in enumerate(i for i in captured.results if i in number)}
        return PartialBackward(pruned, [places.get(i) for i in captured.results])

    def _visit(self, node: Node) -> None:
        if not node.reads and not self._absent.isdisjoint(node.outputs):
            return
        is_reached = not self._present.isdisjoint(node.reads)
        if is_reached:
            self._present.update(node.outputs)
        absent = [v for v in node.reads if v in self._absent]
        if not absent:
            self._rewriter.keep(node)
            return
        other = self._other_term(node)
        if other is not None and self._captured.graph.specs[other.index] == self._captured.graph.specs[node.outputs[0]]:
            self._rewriter.replace_all_uses(node.outputs[0], self._rewriter.operand(other))
        elif other is None and not is_reached:
            self._absent.update(node.outputs)
        else:
            for v in absent:
                self._rewriter.replace_all_uses(v, self._zeros(v, node))
            self._rewriter.keep(node)

    def _other_term(self, node: Node) -> Value | None:
        """Return the term of a sum that is not absent, which may be a constant; None for other nodes."""
        if node.op is not OPS["add"]:
            return None
        terms = [x for x in node.inputs if isinstance(x, Value) and x.index not in self._absent]
        return terms[0] if len(terms) == 1 else None

    def _zeros(self, value: int, node: Node) -> Operand:
        spec = self._captured.graph.tensor(value)
        (result,) = self._rewriter.add(OPS["full"], (), (spec.shape, 0, spec.dtype), node.origin)
        return result
