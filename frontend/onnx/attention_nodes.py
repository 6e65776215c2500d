"""Attention that a model writes out: a product of queries and keys, a factor, a mask, softmax, and a product with values.

Opsets before 23 have no operator for attention, so that exporters write it as five to eight nodes. `join_attention` makes one
node of them, by their structure alone; its function (`table/attention.py`) checks shapes and values when it is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from polyhal.onnx.graph import OnnxGraph, OnnxNode
from polyhal.onnx.registration import find
from polyhal.onnx.stored import Initializer

DOMAIN, NAME = "polyhal", "WrittenAttention"
HIDDEN = -1e30
"""Numbers up to this replace a score of float32 or bfloat16 to which they are added."""
_MASK = 6
"""Position of the mask among the inputs."""


@dataclass(frozen=True, slots=True)
class WrittenForm:
    """Form in which a model writes attention out."""

    axis: int
    """Axis of the softmax."""
    softmax_version: int
    divides: bool = False
    """True if scores are divided by their factor."""
    hides: bool = False
    """True if scores are replaced where a condition is True; False if they are replaced elsewhere."""
    clears_nan: bool = False
    """True if probabilities that are NaN are replaced by 0."""


class _Scores(NamedTuple):
    """The product of queries and keys, with a factor."""

    nodes: tuple[OnnxNode, ...]
    operands: tuple[str, ...]
    """Queries, their factor, transposed keys, their factor; empty names for absent factors."""
    factor: str = ""
    divides: bool = False


class _Masked(NamedTuple):
    """A way to read a value as scores with a mask."""

    nodes: tuple[OnnxNode, ...]
    scores: str
    mask: str = ""
    fill: str = ""
    hides: bool = False


def join_attention(
    nodes: Sequence[OnnxNode], stored: Mapping[str, Initializer], outputs: Sequence[str]
) -> tuple[OnnxNode, ...]:
    """Return nodes in which each attention that is written out is one node."""
    if not any(node.op == "Softmax" for node in nodes):
        return tuple(nodes)
    finder = _Finder(nodes, stored, outputs)
    joined: dict[int, OnnxNode] = {}
    removed: set[int] = set()
    for node in nodes:
        found = finder.find(node)
        if found is not None:
            joined[id(node)], inner = found
            removed |= {id(n) for n in inner}
    return tuple(joined.get(id(n), n) for n in nodes if id(n) not in removed)


def mask_constants(graph: OnnxGraph) -> frozenset[str]:
    """Return the initializers that only masks of joined attention depend on, through nodes without random numbers.

    Kept on the host, they are constants of a captured step, whose passes recognize a causal mask.
    """
    uses = Counter(graph.outputs)
    masking: Counter[str] = Counter()
    for node in graph.nodes:
        uses.update([*node.inputs, *(name for g in node.subgraphs for name in g.captured)])
    for node in reversed(graph.nodes):
        results = [name for name in node.outputs if name]
        foldable = node.operator is not None and node.operator.foldable and not node.subgraphs
        if node.op == NAME:
            masking[node.inputs[_MASK]] += 1
        elif foldable and results and all(masking[name] == uses[name] > 0 for name in results):
            masking.update(node.inputs)
    return frozenset(name for name in graph.stored if masking[name] == uses[name] > 0)


class _Finder:
    """Finds chains of nodes whose inner values have no other uses."""

    def __init__(self, nodes: Sequence[OnnxNode], stored: Mapping[str, Initializer], outputs: Sequence[str]) -> None:
        self._stored = stored
        self._producers = {name: node for node in nodes for name in node.outputs if name}
        self._uses = Counter(outputs)
        for node in nodes:
            self._uses.update([*node.inputs, *(name for g in node.subgraphs for name in g.captured)])

    def find(self, last: OnnxNode) -> tuple[OnnxNode, tuple[OnnxNode, ...]] | None:
        """Return a node in the place of a chain that ends with `last`, and the chain's other nodes."""
        if last.op != "MatMul" or last.operator is None or last.operator.domain:
            return None
        weights, values = last.inputs
        clearing = self._cleared(weights)
        softmax = clearing[-1] if clearing else self._inner(weights, "Softmax")
        if softmax is None:
            return None
        readings = ((m, self._scores(m.scores)) for m in self._maskings(softmax.inputs[0]))
        found = next(((m, scores) for m, scores in readings if scores is not None), None)
        if found is None:
            return None
        masked, scores = found
        axis = softmax.attributes.get("axis", -1 if softmax.version >= 13 else 1)
        form = WrittenForm(int(str(axis)), softmax.version, scores.divides, masked.hides, bool(clearing))
        inputs = (*scores.operands, values, scores.factor, masked.mask, masked.fill)
        joined = OnnxNode(last.name, NAME, 1, find(DOMAIN, NAME, 1), inputs, last.outputs, {"form": form}, (0,))
        return joined, (*clearing, softmax, *masked.nodes, *scores.nodes)

    def _inner(self, value: str, *ops: str, uses: int = 1) -> OnnxNode | None:
        """Return the producer of a value, if it is one of these operators and the value has so many uses."""
        node = self._producers.get(value)
        if node is None or node.op not in ops or len(node.outputs) != 1 or self._uses[value] != uses:
            return None
        return node if node.operator is not None and not node.operator.domain else None

    def _cleared(self, value: str) -> tuple[OnnxNode, ...]:
        """Return the nodes of `where(isnan(softmax(x)), 0, softmax(x))`, the softmax last; none for another value."""
        where = self._inner(value, "Where")
        if where is None or self._constant(where.inputs[1]) != 0:
            return ()
        condition, _, weights = where.inputs
        is_nan, softmax = self._inner(condition, "IsNaN"), self._inner(weights, "Softmax", uses=2)
        if is_nan is None or softmax is None or is_nan.inputs[0] != weights:
            return ()
        return where, is_nan, softmax

    def _maskings(self, value: str) -> Iterator[_Masked]:
        """Yield the ways to read a value as scores with a mask; the last one has none."""
        node = self._inner(value, "Add", "Where")
        if node is not None and node.op == "Add":
            for scores, mask in (node.inputs, node.inputs[::-1]):
                yield _Masked((node,), scores, mask)
        elif node is not None:
            condition, chosen, other = node.inputs
            yield _Masked((node,), other, condition, chosen, hides=True)
            yield _Masked((node,), chosen, condition, other)
        yield _Masked((), value)

    def _scores(self, value: str) -> _Scores | None:
        scaling = self._inner(value, "Mul", "Div")
        if scaling is None:
            return self._product(value)
        for scores, factor in (scaling.inputs, scaling.inputs[::-1])[: 1 if scaling.op == "Div" else 2]:
            product = self._product(scores)
            if product is not None:
                return _Scores((scaling, *product.nodes), product.operands, factor, scaling.op == "Div")
        return None

    def _product(self, value: str) -> _Scores | None:
        product = self._inner(value, "MatMul")
        if product is None:
            return None
        nodes, operands = [product], list[str]()
        for operand in product.inputs:
            scaling = self._inner(operand, "Mul")
            if scaling is None:
                operands += [operand, ""]
            else:
                nodes.append(scaling)
                operands += scaling.inputs
        return _Scores(tuple(nodes), tuple(operands))

    def _constant(self, name: str) -> float | None:
        """Return a constant of one element."""
        stored, node = self._stored.get(name), self._producers.get(name)
        if stored is not None:
            found: object = stored.read() if stored.size == 1 else None
        else:
            attributes = node.attributes if node is not None and node.op == "Constant" else {}
            found = attributes.get("value", attributes.get("value_float"))
        array = np.asarray(found)
        return float(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else None
