"""The captured form of a computation: values with specs, nodes that apply ops to them, and the tracer that records them.

Decompositions are traced into a graph when a plan is made. The graph is in single-assignment form: every node defines new
values, and views are nodes like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from polyhal.hal import dispatch
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec, contiguous, place
from polyhal.hal.ops.methods import Methods
from polyhal.hal.ops.opdef import OpDef, Slot
from polyhal.hal.protocol import InputSpec, Number


class Node(NamedTuple):
    """One op applied to values (by number), literal Python numbers, or absent optional inputs."""

    op: OpDef
    inputs: tuple[Slot | Number | None, ...]
    params: tuple[Any, ...]
    outputs: tuple[int, ...]


class Graph:
    """Values 0..n-1, of which the first are the inputs; nodes in execution order; the outputs."""

    __slots__ = ("inputs", "nodes", "outputs", "specs")

    def __init__(self, inputs: Sequence[InputSpec | None]) -> None:
        self.specs: list[InputSpec | None] = list(inputs)
        self.inputs = len(inputs)
        self.nodes: list[Node] = []
        self.outputs: tuple[int, ...] = ()

    def add(
        self, op: OpDef, inputs: tuple[Slot | Number | None, ...], params: tuple[Any, ...], specs: Sequence[Spec]
    ) -> tuple[int, ...]:
        """Append a node and return the numbers of its outputs."""
        first = len(self.specs)
        self.specs.extend(specs)
        outputs = tuple(range(first, first + len(specs)))
        self.nodes.append(Node(op, inputs, params, outputs))
        return outputs

    def __str__(self) -> str:
        lines = [f"%{i}: {spec}" for i, spec in enumerate(self.specs[: self.inputs])]
        for node in self.nodes:
            args = [f"%{x.index}" if isinstance(x, Slot) else repr(x) for x in node.inputs]
            args += [f"{k}={v!r}" for k, v in node.op.bind(node.params).items()]
            outs = ", ".join(f"%{i}" for i in node.outputs)
            kinds = ", ".join(str(self.specs[i]) for i in node.outputs)
            lines.append(f"{outs} = {node.op.name}({', '.join(args)}): {kinds}")
        lines.append("return " + ", ".join(f"%{i}" for i in self.outputs))
        return "\n".join(lines)


class Symbol(Methods):
    """A value while it is traced: has a spec and no data, and takes part in ops like a tensor."""

    __slots__ = ("index", "spec", "tracer")

    def __init__(self, tracer: Tracer, index: int, spec: InputSpec) -> None:
        self.tracer = tracer
        self.index = index
        self.spec = spec

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        return len(self.spec.shape)


class Tracer:
    """An executor that records ops instead of running them."""

    __slots__ = ("graph",)

    def __init__(self, inputs: Sequence[InputSpec | None]) -> None:
        self.graph = Graph(inputs)

    def symbols(self) -> list[Symbol | None]:
        """The graph's inputs; None where an optional input is absent."""
        return [None if s is None else Symbol(self, i, s) for i, s in enumerate(self.graph.specs)]

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: object = None) -> Any:
        """Record one op; the executor interface of `dispatch`."""
        params = dispatch.freeze(params)
        specs = tuple(_spec(x) for x in inputs)
        slots = tuple(Slot(x.index) if isinstance(x, Symbol) else x for x in inputs)
        bound = op.bind(params)
        inferred = dispatch.infer(op, specs, bound)
        view = op.view(specs[0], bound) if op.view is not None and isinstance(specs[0], Spec) else None
        if view is not None:
            outputs = self.graph.add(op, slots, tuple(bound.values()), [place(specs[0], view)])  # type: ignore[arg-type]
        elif op.view is not None and op.assemble is None:
            from polyhal.hal.ops.movement import contiguous as make_contiguous

            return self.apply(op, (make_contiguous(inputs[0]),), params)
        else:
            outputs = self.graph.add(op, slots, tuple(bound.values()), [contiguous(d, s) for d, s in inferred])
        symbols = tuple(Symbol(self, i, self.graph.specs[i]) for i in outputs)  # type: ignore[arg-type]
        return symbols if op.returns_tuple else symbols[0]


def _spec(x: Any) -> InputSpec | None:
    if x is None:
        return None
    if isinstance(x, Symbol):
        return x.spec
    return ScalarSpec(dispatch.scalar_dtype(x))


def trace(function: Callable[..., Any], inputs: Sequence[InputSpec | None], params: dict[str, Any]) -> Graph:
    """The graph of `function(*inputs, **params)`, which returns a value or a tuple of values."""
    tracer = Tracer(inputs)
    with dispatch.executing(tracer.apply):
        result = function(*tracer.symbols(), **params)
    results = result if isinstance(result, tuple) else (result,)
    tracer.graph.outputs = tuple(r.index for r in results)
    return tracer.graph


__all__ = ["Graph", "Node", "Slot", "Symbol", "Tracer", "trace"]
