"""Masks of attention that are known before a step runs: left out where they hide nothing, or what the causal mask hides.

Programs write the causal mask as a tensor: as a comparison of two ranges, with tril, or as numbers that are added. Kernels
are much faster with `causal=True`: they skip the pairs that it hides, and read no mask. A mask that hides more, such as a
sliding window, or a causal mask joined with one of padding, stays, but the kernels skip the pairs that the causal mask hides.

Only values that depend on no input of the step count, so that a rewritten step is right in each run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.compile.passes.simplify.known_values import KnownValues
from polyhal.hal.layout import Ref

if TYPE_CHECKING:
    from polyhal.hal.ops.tensor_like import Array

_MAX_BYTES = 1 << 28
"""Of one value that a mask is computed from. Values are only held while the graph is optimised."""
_HIDDEN = -1e38
"""Numbers up to this hide a pair when they are added to its score, if another pair of the query is visible: the lowest
numbers of float32 and bfloat16, and -inf."""
_CONJUNCTIONS = ("logical_and", "bitwise_and")
_REPEATS = ("reshape", "broadcast_to", "contiguous", "copy", "cast")
"""Ops whose results have the last two axes of their operands if these have equal lengths, and equal or rounded elements."""


def recognize_masks(graph: Graph) -> Graph:
    """Replace masks by `causal=True` where both hide the same pairs. Must not be called while a step is captured."""
    masked = [k for k, node in enumerate(graph.nodes) if _mask(node) is not None]
    if not masked:
        return graph
    masks = _Masks(graph)
    rewriter = GraphRewriter(graph)
    for k, node in enumerate(graph.nodes):
        replaced = masks.replaced(node) if k in masked else None
        if replaced is None:
            rewriter.keep(node)
        else:
            inputs, params = replaced
            rewriter.replace(node, node.op, [rewriter.operand(x) for x in inputs], params)
    return rewriter.finish()


def _mask(node: Node) -> Value | None:
    """Return the mask of a call of attention or of its gradient."""
    if "mask" not in node.op.schema.inputs or node.op.family != "attention" or node.replaces:
        return None
    mask = node.inputs[node.op.schema.inputs.index("mask")]
    return mask if isinstance(mask, Value) else None


class _Pairs(NamedTuple):
    """The pairs of queries and keys of an attention."""

    queries: int
    keys: int


class _Facts(NamedTuple):
    """The effect of a mask."""

    hides_nothing: bool
    is_causal: bool
    hides_future: bool
    """True if no query sees a key after its own; the last query's own key is the last one. False for a single query."""
    each_query_sees: bool = False
    """True if each query sees a key."""


_UNKNOWN = _Facts(False, False, False)


class _Masks:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known = KnownValues(graph, _MAX_BYTES, from_host_data=True)
        self._facts: dict[tuple[int, _Pairs], _Facts] = {}
        """By mask and pairs: layers share masks."""

    def replaced(self, node: Node) -> tuple[list[Operand], tuple[Any, ...]] | None:
        """Return the operands and parameters of a node without its mask, or with `causal=True`; None to keep it."""
        schema = node.op.schema
        q, k = (self._graph.tensor(node.value(schema.inputs.index(name))) for name in ("q", "k"))
        at, pairs = schema.inputs.index("mask"), _Pairs(q.shape[-2], k.shape[-2])
        facts = self._of(node.value(at), pairs)
        causal = node.bound["causal"]
        leaves_mask = facts.hides_nothing or facts.is_causal
        if not leaves_mask and (causal or not facts.hides_future):
            return None
        inputs: list[Operand] = list(node.inputs)
        if leaves_mask:
            inputs[at] = None
        bound = node.bound | {"causal": causal or not facts.hides_nothing}
        return inputs, tuple(bound.values())

    def _of(self, mask: int, pairs: _Pairs) -> _Facts:
        key = mask, pairs
        if key not in self._facts:
            self._facts[key] = self._found(mask, pairs)
        return self._facts[key]

    def _found(self, mask: int, pairs: _Pairs) -> _Facts:
        if mask in self._known:
            return _facts(self._array(mask), pairs)
        return _Facts(False, False, pairs.queries > 1 and self._hides_future(mask, pairs))

    def _hides_future(self, mask: int, pairs: _Pairs) -> bool:
        """Return whether a mask whose other values are unknown hides all keys after a query's own, in each run."""
        if mask in self._known:
            return self._of(mask, pairs).hides_future
        node = self._graph.producer(mask)
        if node is None or node.replaces:
            return False
        if node.op.name in _CONJUNCTIONS:
            return any(self._hides_future(v, pairs) for v in node.reads)
        if node.op.name == "where":
            return self._selects_visible(node, pairs)
        if node.op.name in _REPEATS:
            (operand,) = node.reads
            before, after = self._graph.tensor(operand), self._graph.tensor(mask)
            same = before.shape[-2:] == after.shape[-2:] and before.dtype.kind == after.dtype.kind
            return same and self._hides_future(operand, pairs)
        return False

    def _selects_visible(self, node: Node, pairs: _Pairs) -> bool:
        """Return whether numbers are added to the scores of visible pairs, and the lowest number to those of the others."""
        condition, _, other = node.inputs
        if not isinstance(condition, Value):
            return False
        number = self._number(other)
        if number is None or number > _HIDDEN:
            return False
        if math.isinf(number):
            return self._hides_future(condition.index, pairs)
        facts = self._of(condition.index, pairs)
        return facts.hides_future and facts.each_query_sees

    def _number(self, x: Operand) -> float | None:
        """Return the number that all elements of an operand are, where that is known."""
        if not isinstance(x, Value):
            return x
        if x.index not in self._known:
            return None
        elements = self._array(x.index)
        return float(elements.flat[0]) if elements.size == 1 else None

    def _array(self, mask: int) -> Array:
        """Return the elements of a known value without the axes along which they repeat."""
        array = self._known.array(mask)
        shape = tuple(1 if stride == 0 else n for n, stride in zip(array.ref.shape, array.ref.strides, strict=True))
        once = array.ref.spec._replace(shape=shape)
        elements: Array = array.device.download(Ref(array.ref.handle, once, array.ref.offset))
        return elements


def _facts(mask: Array, pairs: _Pairs) -> _Facts:
    """Return the effect of a mask that broadcasts to (..., queries, keys)."""
    mask = mask.reshape((1,) * max(0, 2 - mask.ndim) + mask.shape)
    visible, decided = mask, True
    if mask.dtype != bool:
        mask = mask.astype(np.promote_types(mask.dtype, np.float32))
        visible = ~(mask <= _HIDDEN)  # NaN hides nothing.
        decided = bool(np.all((mask == 0) | ~visible))
    each_query_sees = bool(np.broadcast_to(visible, (*mask.shape[:-2], *pairs)).any(-1).all())
    if not each_query_sees and np.any(np.isfinite(mask[~visible])) and mask.dtype != bool:
        return _UNKNOWN  # Finite numbers hide nothing from a query whose keys all have them.
    causal = np.tri(pairs.queries, pairs.keys, pairs.keys - pairs.queries, bool)
    hides_future = not np.any(visible & ~causal)
    return _Facts(
        hides_nothing=decided and bool(np.all(visible)),
        is_causal=decided and hides_future and not np.any(causal & ~visible),
        hides_future=hides_future and pairs.queries > 1,
        each_query_sees=each_query_sees,
    )
