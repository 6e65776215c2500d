"""Fuses pointwise ops into the op whose result they work on, before that is stored: the epilogues of products.

The table is in `hal.ops`: an op that declares an `EpiloguePattern` takes over a root op and the chain after it. A chain goes
through reshapes and through pointwise ops that are the only user: bias, scale, activation, residual, gradient of an activation.
An op that scales the residual, as `beta` of `addmm` does, joins from the side. A chain of half precision may go on in float32,
in which kernels sum: a product in bfloat16 takes over the addition of a residual in float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value, operand_key
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.compile.passes.fuse.elementwise import numbered_steps
from polyhal.hal.compile.passes.fuse.replacement import Match, Replacements
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.ops.fusion import EpiloguePattern
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.ops.schema import Specs
from polyhal.hal.ops.traits import Trait


def fuse_epilogues(graph: Graph) -> Graph:
    """Fuse the longest chains for which devices have kernels into the ops that they follow."""
    search = _Search(graph)
    for op in OPS:
        if isinstance(op.fuses, EpiloguePattern):
            search.fuse(op, op.fuses)
    return search.replacements.applied()


@dataclass(frozen=True, slots=True)
class _Chain:
    """Positions of a root op and the pointwise nodes after it; `nodes` has the reshapes between them, too."""

    root: int
    steps: tuple[int, ...]
    nodes: frozenset[int]
    sides: tuple[int, ...] = ()
    """Pointwise nodes that scale operands of the steps."""

    @property
    def last(self) -> int:
        """The position of the node that makes the result."""
        return self.steps[-1] if self.steps else self.root


class _Root(NamedTuple):
    """A root as the fused op computes it, in the operands of the new graph."""

    operands: list[Operand]
    params: Mapping[str, Any]
    result: Value
    steps: list[Node]
    """Pointwise nodes that the spelling of a root adds behind the root itself."""


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.replacements = Replacements(graph)
        self._graph = graph
        # Has every value as an input; the views that chains would need are added to it.
        self._probe = GraphRewriter.probe(graph)
        self._spellings: dict[tuple[str, Specs, tuple[Any, ...]], Graph] = {}
        """Roots as traced by their spelling, because layers of a model are mostly equal."""

    def fuse(self, op: OpDef, epilogue: EpiloguePattern) -> None:
        """Find the chains of one fused op."""
        for k, node in enumerate(self._graph.nodes):
            if (node.op.name == epilogue.root or node.op.name in epilogue.spellings) and self._is_root(node):
                chains = (c for chain in self._chains(k, epilogue) for c in self._with_sides(chain, epilogue))
                match = next(filter(None, (self._match(op, epilogue, c) for c in chains)), None)
                if match is not None:
                    self.replacements.add(match)

    def _is_root(self, node: Node) -> bool:
        """Return whether a node computes one used result, in one floating-point dtype, on a device that fuses ops."""
        if not can_fuse(node):
            return False
        graph = self._graph
        if any(graph.use_count(v) for v in node.outputs[1:]):  # The fused op gives the first result only.
            return False
        out = graph.output_specs(node)[0]
        tensors = [s for s in (graph.spec_of(x) for x in node.inputs) if isinstance(s, Spec)]
        floats = [s for s in tensors if s.dtype.is_floating_point]  # others are weights in blocks
        alike = out.dtype.is_floating_point and all(s.dtype is out.dtype for s in floats)
        return alike and bool(tensors) and tensors[0].ndim > 1

    # --- chains -----------------------------------------------------------------------------------------------------

    def _chains(self, k: int, epilogue: EpiloguePattern) -> Iterator[_Chain]:
        """The chains after node `k`, the longest first."""
        steps: list[int] = []
        nodes = {k}
        own = {self._graph.nodes[k].outputs[0]}
        chains: list[_Chain] = [_Chain(k, (), frozenset(nodes))]
        while len(steps) < epilogue.max_steps:
            passed, user = self._only_user(self._graph.nodes[steps[-1] if steps else k].outputs[0])
            own |= {v for p in passed for v in self._graph.nodes[p].outputs}
            if user is None or not self._may_follow(k, [*steps, user], own, epilogue):
                break
            nodes |= {*passed, user}
            own |= set(self._graph.nodes[user].outputs)
            steps.append(user)
            chains.append(_Chain(k, tuple(steps), frozenset(nodes)))
        yield from reversed(chains)

    def _with_sides(self, chain: _Chain, epilogue: EpiloguePattern) -> Iterator[_Chain]:
        """A chain with the nodes that scale operands of its steps, if there are any, and without them."""
        graph = self._graph
        root = graph.nodes[chain.root]
        spelled = self._opened(self._probe, epilogue, root).steps if root.op.name in epilogue.spellings else []
        steps = [*spelled, *(graph.nodes[k] for k in chain.steps)]
        reads = Counter(v for node in steps for v in node.reads if v >= 0)
        result = graph.output_specs(root)[0]
        made = {graph.producer_index(v) for v, count in reads.items() if self._scales(v, count, result)}
        sides = tuple(sorted(made - chain.nodes))
        if sides:
            yield replace(chain, nodes=chain.nodes | set(sides), sides=sides)
        if chain.steps:
            yield chain

    def _scales(self, v: int, count: int, result: Spec) -> bool:
        """Return whether a cheap op with numbers makes an operand, with as many elements as the product, of one tensor."""
        graph = self._graph
        node, spec = graph.producer(v), graph.specs[v]
        if node is None or graph.use_count(v) != count or not isinstance(spec, Spec) or spec.size != result.size:
            return False
        if Trait.POINTWISE | Trait.CHEAP not in node.op.traits or len(set(node.reads)) != 1:
            return False
        return spec.dtype is result.dtype and self._lies_beside(node.reads[0], spec, result)

    def _only_user(self, value: int) -> tuple[list[int], int | None]:
        """The reshapes behind a value, and the one node behind these that is its only reader."""
        passed: list[int] = []
        while True:
            users = self._graph.user_indices(value)
            if len(users) != 1 or self._graph.use_count(value) != self._graph.nodes[users[0]].reads.count(value):
                return passed, None
            node = self._graph.nodes[users[0]]
            if node.op is not OPS["reshape"]:
                return passed, users[0]
            passed.append(users[0])
            value = node.outputs[0]

    def _may_follow(self, root: int, steps: Sequence[int], own: set[int], epilogue: EpiloguePattern) -> bool:
        """Return whether the last of `steps` can be computed where the root's result is stored."""
        graph = self._graph
        node = graph.nodes[steps[-1]]
        if Trait.POINTWISE not in node.op.traits:
            return False
        (step,), result = graph.output_specs(node), graph.output_specs(graph.nodes[root])[0]
        before = graph.output_specs(graph.nodes[steps[-2]])[0] if len(steps) > 1 else result
        if step.dtype not in (before.dtype, accumulator(result.dtype)) or step.size != result.size:
            return False
        others = {v for k in steps for v in graph.nodes[k].reads} - own
        if len(others) > epilogue.max_operands:
            return False
        return all(self._lies_beside(v, step, result) for v in set(node.reads) - own)

    def _lies_beside(self, v: int, step: Spec, result: Spec) -> bool:
        """Return whether an operand has one element, one for each element of the step's result, or one for each column."""
        spec = self._graph.specs[v]
        if not isinstance(spec, Spec) or spec.dtype not in (result.dtype, step.dtype):
            return False
        if spec.shape == step.shape:
            return spec.is_contiguous
        return spec.size == 1 or (spec.size == spec.shape[-1] == result.shape[-1] == step.shape[-1])

    # --- writing ----------------------------------------------------------------------------------------------------

    def _match(self, op: OpDef, epilogue: EpiloguePattern, chain: _Chain) -> Match | None:
        """The match of a chain, if its nodes are free and the device has a kernel for it."""
        last = self._graph.nodes[chain.last]
        root = self._graph.nodes[chain.root]
        if not self.replacements.allows(chain.nodes, last.outputs):
            return None
        inputs, params = self._call(self._probe, op, epilogue, chain)
        if not self._probe.has_kernel(op, inputs, params, root.place):
            return None

        def write(rewriter: GraphRewriter) -> None:
            inputs, params = self._call(rewriter, op, epilogue, chain)
            (fused,) = rewriter.add(op, inputs, params, root.origin)
            spec = self._graph.tensor(last.outputs[0])
            if rewriter.tensor(fused) != spec:
                (fused,) = rewriter.add(OPS["reshape"], [fused], (spec.shape,), root.origin)
            rewriter.replace_all_uses(last.outputs[0], fused)

        return Match(chain.nodes, chain.last, write)

    def _call(
        self, rewriter: GraphRewriter, op: OpDef, epilogue: EpiloguePattern, chain: _Chain
    ) -> tuple[list[Operand], tuple[Any, ...]]:
        """The operands and parameters of the fused op. The views that it needs are added to the new graph."""
        root = self._graph.nodes[chain.root]
        operands, root_params, stored, steps = self._opened(rewriter, epilogue, root)
        followers = sorted(chain.nodes - {chain.root, *chain.sides})
        nodes = [*(self._graph.nodes[k] for k in chain.sides), *steps, *(self._graph.nodes[k] for k in followers)]
        inside = {stored, *(Value(v) for n in nodes for v in n.outputs)}
        read = [x for n in nodes for x in n.inputs if x not in inside]
        tensors = list(dict.fromkeys(x for x in read if isinstance(x, Value)))
        literals = list({operand_key(x): x for x in read if isinstance(x, (bool, int, float))}.values())
        numbers = {key: i for i, key in enumerate([stored, *map(operand_key, (*tensors, *literals))])}
        result = self._graph.output_specs(root)[0]
        operands += [self._beside(rewriter, rewriter.operand(x), result, root) for x in tensors]
        stored_dtype = self._graph.output_specs(self._graph.nodes[chain.last])[0].dtype
        params = {**root_params, "steps": numbered_steps(nodes, numbers), "numbers": tuple(literals)}
        if stored_dtype is not result.dtype:
            params["out_dtype"] = stored_dtype
        return operands, tuple(params.get(name, default) for name, default in op.schema.params.items())

    def _opened(self, rewriter: GraphRewriter, epilogue: EpiloguePattern, root: Node) -> _Root:
        """A root node as a call of the root op. The nodes that its spelling needs before that are added."""
        result = Value(root.outputs[0])
        spelling = epilogue.spellings.get(root.op.name)
        if spelling is None:
            return _Root(list(rewriter.operands(root)), root.bound, result, [])
        specs = tuple(self._graph.spec_of(x) for x in root.inputs)
        parts = self._spellings.get((root.op.name, specs, root.params))
        if parts is None:
            parts = self._spellings[root.op.name, specs, root.params] = trace(spelling, specs, root.bound)
        # Nodes of the spelling are named by values that the graph does not have, but for the result of the whole.
        names = {v: result if v in parts.outputs else Value(~v) for n in parts.nodes for v in n.outputs}
        old: dict[int, Operand] = {**names, **dict(enumerate(root.inputs))}
        k = next(i for i, n in enumerate(parts.nodes) if n.op.name == epilogue.root)
        read = {v for n in parts.nodes[: k + 1] for v in n.reads if v < parts.inputs}
        new = {v: rewriter.operand(root.inputs[v]) for v in sorted(read)}
        for node in parts.nodes[:k]:
            inputs = [new[x.index] if isinstance(x, Value) else x for x in node.inputs]
            new.update(zip(node.outputs, rewriter.add(node.op, inputs, node.params, root.origin), strict=True))
        nodes = [
            Node(
                n.op, tuple(old[x.index] if isinstance(x, Value) else x for x in n.inputs), n.params, (names[v].index,)
            )
            for n in parts.nodes[k + 1 :]
            for v in n.outputs
        ]
        opened = parts.nodes[k]
        return _Root([new[v] for v in opened.reads], opened.bound, names[opened.outputs[0]], nodes)

    def _beside(self, rewriter: GraphRewriter, x: Operand, result: Spec, root: Node) -> Operand:
        """An operand of a step in a shape that broadcasts to that of the root's result."""
        spec = rewriter.tensor(x)
        shape: Sequence[int] = spec.shape
        if spec.size == result.size and spec.size != 1:
            shape = result.shape
        elif spec.ndim > 1:
            shape = spec.shape[-1:] if spec.size > 1 else ()
        return x if tuple(shape) == spec.shape else rewriter.add(OPS["reshape"], [x], (tuple(shape),), root.origin)[0]
