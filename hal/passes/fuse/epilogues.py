"""Elementwise ops on the result of a matrix product are done to its sums before these are stored.

The product of `linear` counts as one, and its bias as the first addend. A result is followed through reshapes and through ops
that alone read it: bias, scale, activation, residual, the gradient of an activation. Devices take these groups or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from polyhal.hal.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.hal.ops.traits import Trait

_MOST_OPERANDS = 4
"""Tensors beside the factors. Each takes registers for its place in every kernel's innermost part."""
_MOST_STEPS = 8


def fuse_epilogues(graph: Graph) -> Graph:
    """Let products finish their results, on devices that have kernels for it."""
    search = _Search(graph)
    chains: dict[int, _Chain] = {}
    left_out: set[int] = set()
    for k, node in enumerate(graph.nodes):
        chain = search.chain(k, node)
        while chain is not None and chain.steps:
            if search.has_kernel(chain):
                chains[chain.last] = chain
                left_out |= chain.nodes - {chain.last}
                break
            chain = search.shorter(chain)
    rewriter = GraphRewriter(graph)
    for k, node in enumerate(graph.nodes):
        if k in chains:
            _emit(rewriter, search, chains[k])
        elif k not in left_out:
            rewriter.keep(node)
    return rewriter.finish()


@dataclass(slots=True)
class _Chain:
    """A product and the nodes that follow it, by number; `last` makes what all of them together make."""

    product: int
    steps: list[int] = field(default_factory=list)
    nodes: set[int] = field(default_factory=set)
    """With reshapes between the steps."""

    @property
    def last(self) -> int:
        return self.steps[-1]


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._uses = graph._used().counts
        self._maker = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
        # A graph that has every value for an input, to which the views are added that a chain would need.
        self._trial = GraphRewriter.probe(graph)
        self._readers: dict[int, list[int]] = {}
        for k, node in enumerate(graph.nodes):
            for x in dict.fromkeys(x for x in node.inputs if isinstance(x, Value)):
                self._readers.setdefault(x.index, []).append(k)

    def chain(self, k: int, node: Node) -> _Chain | None:
        """The longest chain of a product."""
        if not _is_product(self.graph, node):
            return None
        chain = _Chain(k, nodes={k})
        value = node.outputs[0]
        while len(chain.steps) < _MOST_STEPS:
            passed, reader = self._only_reader(value)
            if reader is None or not self._may_follow(chain, reader, {value, *passed}):
                break
            chain.nodes |= {*(self._maker[v] for v in passed), reader}
            chain.steps.append(reader)
            value = self.graph.nodes[reader].outputs[0]
        return chain if chain.steps else None

    def shorter(self, chain: _Chain) -> _Chain | None:
        """The chain without its last step."""
        found = _Chain(chain.product, chain.steps[:-1])
        if not found.steps:
            return None
        found.nodes = {k for k in chain.nodes if k <= found.last}
        return found

    def has_kernel(self, chain: _Chain) -> bool:
        """Whether the device takes the chain as one op."""
        origin = self.graph.nodes[chain.product].origin
        assert origin is not None
        inputs, params = _described(self._trial, self, chain)
        return self._trial.has_kernel(OPS["fused_matmul"], inputs, params, origin)

    def _only_reader(self, value: int) -> tuple[list[int], int | None]:
        """The one node that reads a value, behind reshapes; and the values of these."""
        passed: list[int] = []
        while True:
            readers = self._readers.get(value, [])
            if len(readers) != 1:
                return passed, None
            node = self.graph.nodes[readers[0]]
            if self._uses[value] != sum(x == Value(value) for x in node.inputs):
                return passed, None
            if node.op is not OPS["reshape"]:
                return passed, readers[0]
            value = node.outputs[0]
            passed.append(value)

    def _may_follow(self, chain: _Chain, k: int, own: set[int]) -> bool:
        node, product = self.graph.nodes[k], self.graph.nodes[chain.product]
        if Trait.POINTWISE not in node.op.traits or node.replaces or node.origin is None or product.origin is None:
            return False
        made, result = self.graph.specs[node.outputs[0]], self.graph.specs[product.outputs[0]]
        assert isinstance(made, Spec)
        assert isinstance(result, Spec)
        if (
            node.origin.merge_key != product.origin.merge_key
            or made.dtype is not result.dtype
            or made.size != result.size
        ):
            return False
        others = [x for x in node.inputs if isinstance(x, Value) and x.index not in own]
        if len(self._others(chain) | {x.index for x in others}) > _MOST_OPERANDS:
            return False
        return all(self._may_be_read(x, made, result) for x in others)

    def _others(self, chain: _Chain) -> set[int]:
        made = {v for k in chain.nodes for v in self.graph.nodes[k].outputs}
        read = {x.index for k in chain.steps for x in self.graph.nodes[k].inputs if isinstance(x, Value)}
        return read - made

    def _may_be_read(self, x: Value, made: Spec, result: Spec) -> bool:
        """Whether an operand of a step that makes `made` lies beside the product's `result`, for each of its elements."""
        spec = self.graph.specs[x.index]
        if not isinstance(spec, Spec) or spec.dtype is not result.dtype:
            return False
        if spec.shape == made.shape:
            return spec.is_contiguous
        return spec.size == 1 or (spec.size == spec.shape[-1] == result.shape[-1] == made.shape[-1])


def _is_product(graph: Graph, node: Node) -> bool:
    if node.op.name not in ("matmul", "linear") or not can_fuse(node):
        return False
    x, y = (graph.spec_of(operand) for operand in node.inputs[:2])
    (out,) = (graph.specs[v] for v in node.outputs)
    alike = isinstance(x, Spec) and isinstance(y, Spec) and isinstance(out, Spec) and x.dtype is y.dtype is out.dtype
    return alike and x is not None and x.ndim > 1 and out is not None and out.dtype.is_floating_point


def _described(rewriter: GraphRewriter, search: _Search, chain: _Chain) -> tuple[list[Operand], tuple[Any, ...]]:
    """The inputs and the parameters of the op that a chain becomes. Views that it needs are added to the new graph."""
    graph = search.graph
    product = graph.nodes[chain.product]
    (result,) = (graph.specs[v] for v in product.outputs)
    assert isinstance(result, Spec)
    inputs: list[Operand] = list(rewriter.operands(product)[:2])
    bias: Operand = None
    if product.op.name == "linear":
        assert isinstance(inputs[1], Value)
        (inputs[1],) = rewriter.add(OPS["permute"], [inputs[1]], ((1, 0),), product.origin)
        bias = product.inputs[2]
    nodes = [graph.nodes[k] for k in chain.steps]
    inside = {v for k in chain.nodes for v in graph.nodes[k].outputs}
    read = [x for n in nodes for x in n.inputs]
    tensors = list(dict.fromkeys(x for x in [bias, *read] if isinstance(x, Value) and x.index not in inside))
    numbers = list({(type(x), repr(x)): x for x in read if isinstance(x, (bool, int, float))}.values())
    places: dict[Any, int] = {_key(x): 1 + i for i, x in enumerate((*tensors, *numbers))}
    inputs += [_beside(rewriter, rewriter.operand(x), result, product) for x in tensors]
    first = 1 + len(tensors) + len(numbers)
    steps: list[GroupStep] = []
    now = 0
    if isinstance(bias, Value):
        steps.append(("add", (0, places[_key(bias)]), ()))
        now = first
    for node in nodes:
        arguments = tuple(
            None if x is None else now if isinstance(x, Value) and x.index in inside else places[_key(x)]
            for x in node.inputs
        )
        steps.append((node.op.name, arguments, node.params))
        now = first + len(steps) - 1
    return inputs, (tuple(steps), tuple(numbers))


def _key(x: Operand) -> Any:
    return x if isinstance(x, Value) else (type(x), repr(x))


def _beside(rewriter: GraphRewriter, x: Operand, result: Spec, product: Node) -> Operand:
    """An operand of a step in a shape that broadcasts to the product's."""
    spec = rewriter.new.spec_of(x)
    assert isinstance(spec, Spec)
    shape: Sequence[int] = spec.shape
    if spec.size == result.size and spec.size != 1:
        shape = result.shape
    elif spec.ndim > 1:
        shape = spec.shape[-1:] if spec.size > 1 else ()
    return x if tuple(shape) == spec.shape else rewriter.add(OPS["reshape"], [x], (tuple(shape),), product.origin)[0]


def _emit(rewriter: GraphRewriter, search: _Search, chain: _Chain) -> None:
    """Add a chain as one op, and give its result the shape that the last step had."""
    graph = search.graph
    product, last = graph.nodes[chain.product], graph.nodes[chain.last]
    inputs, params = _described(rewriter, search, chain)
    (made,) = rewriter.add(OPS["fused_matmul"], inputs, params, product.origin)
    wanted = graph.specs[last.outputs[0]]
    assert isinstance(wanted, Spec)
    if rewriter.new.specs[made.index] != wanted:
        (made,) = rewriter.add(OPS["reshape"], [made], (wanted.shape,), product.origin)
    rewriter.replace_all_uses(last.outputs[0], made)
