"""Activations and their gradients that programs compute from plain ops, found by their values.

A formula whose backward pass reads inner values is not a pattern by itself (`patterns`), and under autocast parts of it are in
half precision. All its ops are analytic functions, so two formulas that agree at some points are the same function: values are
computed at sample points in float64, and compared with the references of the activation and of its gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.dtypes import accumulator
from polyhal.hal.ops.opdef import OPS, OpDef

_COPIES = frozenset(OPS[name] for name in ("cast", "reshape"))
"""Ops that leave all values as they are, up to rounding, and in their order."""
_ANALYTIC = frozenset(
    OPS[name]
    for name in (
        "add",
        "divide",
        "erf",
        "exp",
        "multiply",
        "negative",
        "pow",
        "square",
        "subtract",
        "tanh",
        "tanh_grad",
    )
)
"""Ops of the formulas. None has a condition, which sample points could miss."""
_ROOTS = frozenset(OPS[name] for name in ("erf", "tanh"))
"""Ops in every formula, from which the search starts."""
_ACTIVATIONS = tuple((OPS["gelu"], OPS["gelu_grad"], (kind,)) for kind in ("none", "tanh"))
"""Activations, their gradients, and the parameters of both."""
_LARGEST = 64
"""Maximum values of a formula and its gradient, which have about 30."""
_POINTS = np.linspace(-3.9, 4.1, 23)
_GRADIENTS = np.cos(7 * _POINTS) + 0.25
_CLOSE = 1e-6
"""Maximum difference of functions that are equal but for the digits of their constants: tanh and erf differ by 1e-3."""


def recognize_activations(graph: Graph) -> Graph:
    """Replace formulas of activations, and the gradients that autograd derives from them, by the ops."""
    search = _Search(graph)
    for node in graph.nodes:
        if node.op in _ROOTS and can_fuse(node):
            search.from_root(node)
    return search.rewritten() if search.found else graph


class _Sampled(NamedTuple):
    """A function of the activation's input, and of a gradient unless that is None, at the sample points."""

    values: np.ndarray
    gradient: int | None


class _Call(NamedTuple):
    """An op that computes a value of the graph; its inputs may have another shape."""

    op: OpDef
    inputs: tuple[int, ...]
    params: tuple[Any, ...]


class _Search:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._probe = GraphRewriter.probe(graph)
        self.found: dict[int, _Call] = {}
        """Ops by the position of the nodes that they replace."""

    def from_root(self, root: Node) -> None:
        """Look for an activation whose formula contains a node, and for its gradient: without one it is a pattern."""
        for x in self._inputs(root):
            known = self._functions_of(x, root)
            for op, gradient, params in _ACTIVATIONS:
                results = self._matches(known, x, op, params, with_gradient=False)
                slopes = self._matches(known, x, gradient, params, with_gradient=True)
                if results and slopes:
                    self.found |= results | slopes
                    return

    def _matches(
        self, known: Mapping[int, _Sampled], x: int, op: OpDef, params: tuple[Any, ...], *, with_gradient: bool
    ) -> dict[int, _Call]:
        """Return the positions of nodes that compute the function of an op, if the device has a kernel for it, with the op."""
        graph, probe = self._graph, self._probe
        expected = op.reference(*((_GRADIENTS, _POINTS) if with_gradient else (_POINTS,)), **op.bind(params))
        matches: dict[int, _Call] = {}
        for value, sampled in known.items():
            gradient = sampled.gradient
            if value == x or (gradient is not None) != with_gradient:
                continue
            if not np.allclose(sampled.values, expected, rtol=0, atol=_CLOSE):
                continue
            k = graph.producer_index(value)
            call = _Call(op, (x,) if gradient is None else (gradient, x), params)
            inputs = self._shaped(probe, call, graph.nodes[k])
            fits = probe.infer(op, inputs, params) == [graph.specs[value]]
            if fits and probe.has_kernel(op, inputs, params, graph.nodes[k].place):
                matches[k] = call
        return matches

    def _shaped(self, rewriter: GraphRewriter, call: _Call, node: Node) -> list[Operand]:
        """Return the inputs of an op in the new graph, in the shape of the result of the node that it replaces."""
        shape = self._graph.tensor(node.outputs[0]).shape
        inputs: list[Operand] = []
        for v in call.inputs:
            x = rewriter.operand(Value(v))
            same = self._graph.tensor(v).shape == shape
            inputs.append(x if same else rewriter.add(OPS["reshape"], [x], (shape,), node.origin)[0])
        return inputs

    def _inputs(self, root: Node) -> Iterator[int]:
        """Yield the tensors that determine a root's operand by analytic ops, the nearest first."""
        graph = self._graph
        frontier = {self._source(root.value(0))}
        while frontier:
            if len(frontier) == 1:
                yield from frontier
            latest = max(frontier, key=graph.producer_index)
            node = graph.producer(latest)
            if node is None or node.op not in _ANALYTIC or not self._is_elementwise(node):
                return
            frontier = frontier - {latest} | {self._source(v) for v in node.reads}

    def _source(self, value: int) -> int:
        """Return the tensor that a value copies, in another shape or a wider dtype: the value itself if it is a result."""
        graph = self._graph
        while (node := graph.producer(value)) is not None and node.op in _COPIES:
            before, after = graph.tensor(node.value(0)), graph.tensor(value)
            widens = before.dtype is after.dtype or accumulator(before.dtype) is after.dtype
            if not (widens and before.is_contiguous and after.is_contiguous):
                break
            value = node.value(0)
        return value

    def _functions_of(self, x: int, root: Node) -> dict[int, _Sampled]:
        """Return the values that analytic ops compute from `x`, or from `x` and one other tensor, at the sample points."""
        graph = self._graph
        known = {x: _Sampled(_POINTS, None)}
        pending = list(graph.user_indices(x))
        heapify(pending)
        while pending and len(known) < _LARGEST:
            node = graph.nodes[heappop(pending)]
            if node.outputs[0] in known or not self._is_elementwise(node) or not node.merges_with(root):
                continue
            gradients = {known[v].gradient if v in known else self._source(v) for v in node.reads} - {None}
            if len(gradients) > 1:
                continue
            operands = [self._sampled(operand, known) for operand in node.inputs]
            with np.errstate(all="ignore"):
                values = operands[0] if node.op in _COPIES else node.op.reference(*operands, **node.bound)
            known[node.outputs[0]] = _Sampled(np.asarray(values), next(iter(gradients), None))
            for k in graph.user_indices(node.outputs[0]):
                heappush(pending, k)
        return known

    def _is_elementwise(self, node: Node) -> bool:
        """Return whether a node computes each element of a float tensor from the same elements of its operands, and numbers."""
        graph = self._graph
        if node.op not in _ANALYTIC and node.op not in _COPIES:
            return False
        if not all(graph.is_tensor(v) for v in node.reads):
            return False
        specs = [graph.tensor(v) for v in (*node.reads, node.outputs[0])]
        same = node.op in _COPIES or all(s.shape == specs[0].shape for s in specs)
        return same and all(s.is_contiguous and s.dtype.is_floating_point for s in specs)

    @staticmethod
    def _sampled(operand: Operand, known: Mapping[int, _Sampled]) -> Any:
        """Return an operand at the sample points: a number, a function of the input, or the gradient."""
        if not isinstance(operand, Value):
            return operand
        return known[operand.index].values if operand.index in known else _GRADIENTS

    def rewritten(self) -> Graph:
        """Return the graph with the ops in place of the last nodes of their formulas."""
        rewriter = GraphRewriter(self._graph)
        for k, node in enumerate(self._graph.nodes):
            if k in self.found:
                call = self.found[k]
                rewriter.replace(node, call.op, self._shaped(rewriter, call, node), call.params)
            else:
                rewriter.keep(node)
        return rewriter.finish()
