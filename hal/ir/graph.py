"""The captured form of a computation: values with specs, and nodes that apply ops to them.

The graph is in single-assignment form: every node defines new values, and views are nodes like any other. Decompositions are
traced into one when a plan is made (see `trace`), whole steps when they are captured (see `capture`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal import dispatch
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec, contiguous, place
from polyhal.hal.ops.methods import Methods
from polyhal.hal.ops.opdef import OpDef, Value
from polyhal.hal.protocol import InputSpec, Number

if TYPE_CHECKING:
    from polyhal.hal.capture.result import CapturedConstant
    from polyhal.hal.device import Device

Operand = Value | Number | None
"""A value by number, a literal Python number, or an absent optional input."""


class Origin(NamedTuple):
    """Where a node of a captured step comes from, and what was in force there."""

    device: Device
    settings: tuple[Any, ...]
    """`hal.settings` at the time."""
    module: str = ""
    """The path of the module whose forward pass, or whose gradient, it belongs to."""
    again: int = 0
    """Which checkpointed region it computes again; 0 if none."""

    @property
    def alike(self) -> tuple[Any, ...]:
        """What nodes that become one have in common. What is computed again must not be kept from the first time."""
        return self.device, self.settings, self.again


class Node(NamedTuple):
    """One op applied to operands. `origin` is None in decompositions."""

    op: OpDef
    inputs: tuple[Operand, ...]
    params: tuple[Any, ...]
    outputs: tuple[int, ...]
    origin: Origin | None = None
    replaces: tuple[int, ...] = ()
    """For each output the operand in whose memory it is to be made, if nobody reads that afterwards; -1 for none."""


class Graph:
    """Values 0..n-1, of which the first are the inputs; nodes in execution order; the outputs.

    `updates` maps inputs to the values that replace them in their memory when the graph has run. The last of the inputs may
    be `constants`, which passes computed.
    """

    __slots__ = ("constants", "inputs", "names", "nodes", "outputs", "specs", "updates")

    def __init__(self, inputs: Sequence[InputSpec | None] = ()) -> None:
        self.specs: list[InputSpec | None] = list(inputs)
        self.inputs = len(self.specs)
        self.nodes: list[Node] = []
        self.outputs: tuple[int, ...] = ()
        self.updates: dict[int, int] = {}
        self.constants: list[CapturedConstant] = []
        self.names: dict[int, str] = {}
        """What the inputs and outputs are called, as far as they are called anything."""

    def add(
        self,
        op: OpDef,
        inputs: tuple[Operand, ...],
        params: tuple[Any, ...],
        specs: Sequence[Spec],
        origin: Origin | None = None,
        replaces: tuple[int, ...] = (),
    ) -> tuple[int, ...]:
        """Append a node and return the numbers of its outputs."""
        first = len(self.specs)
        self.specs.extend(specs)
        outputs = tuple(range(first, first + len(specs)))
        self.nodes.append(Node(op, inputs, params, outputs, origin, replaces))
        return outputs

    def spec_of(self, operand: Operand) -> InputSpec | None:
        """What an operand is."""
        if isinstance(operand, Value):
            return self.specs[operand.index]
        return None if operand is None else ScalarSpec(dispatch.scalar_dtype(operand))

    def view_offset(self, node: Node) -> int | None:
        """How far the first element of a view lies from that of what it views; None for nodes that make something."""
        if node.op.view is None:
            return None
        spec = self.spec_of(node.inputs[0])
        view = node.op.view(spec, node.op.bind(node.params)) if isinstance(spec, Spec) else None
        return None if view is None else view.offset

    def returning(self, count: int) -> Graph:
        """The same graph with only the first `count` outputs."""
        graph = Graph()
        for name in Graph.__slots__:
            setattr(graph, name, getattr(self, name))
        graph.outputs = self.outputs[:count]
        return graph

    def __str__(self) -> str:
        from polyhal.hal.ir.text import write

        return write(self)


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


class Tracer(dispatch.ForwardingExecutor):
    """An executor that records ops instead of running them."""

    __slots__ = ("graph",)

    def __init__(self, inputs: Sequence[InputSpec | None]) -> None:
        super().__init__(dispatch.thread.executor)
        self.graph = Graph(inputs)

    def symbols(self) -> list[Symbol | None]:
        """The graph's inputs; None where an optional input is absent."""
        return [None if s is None else Symbol(self, i, s) for i, s in enumerate(self.graph.specs)]

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: object = None) -> Any:
        """Record one op; the executor interface of `dispatch`."""
        params = dispatch.freeze(params)
        specs = tuple(_spec(x) for x in inputs)
        slots = tuple(Value(x.index) if isinstance(x, Symbol) else x for x in inputs)
        bound = op.bind(params)
        inferred = dispatch.infer(op, specs, bound)
        view = op.view(specs[0], bound) if op.view is not None and isinstance(specs[0], Spec) else None
        if view is not None:
            outputs = self.graph.add(op, slots, tuple(bound.values()), [place(specs[0], view)])  # type: ignore[arg-type]
        elif op.view is not None and op.assemble is None:
            from polyhal.hal.ops.layout.movement import contiguous as make_contiguous

            return self.apply(op, (make_contiguous(inputs[0]),), params)
        else:
            outputs = self.graph.add(op, slots, tuple(bound.values()), [contiguous(d, s) for d, s in inferred])
        symbols = tuple(Symbol(self, i, self.graph.specs[i]) for i in outputs)  # type: ignore[arg-type]
        return symbols if op.returns_tuple else symbols[0]


def with_needs(number: int, needs: Callable[[int], Iterable[int]], done: set[int]) -> Iterator[int]:
    """`number` after all that it needs, directly or not, without what is in `done`; what is given is added to that."""
    pending = [number]
    while pending:
        top = pending[-1]
        missing = [n for n in needs(top) if n not in done]
        if missing:
            pending += missing
            continue
        pending.pop()
        if top not in done:
            done.add(top)
            yield top


def _spec(x: Any) -> InputSpec | None:
    if x is None:
        return None
    if isinstance(x, Symbol):
        return x.spec
    return ScalarSpec(dispatch.scalar_dtype(x))


def trace(function: Callable[..., Any], inputs: Sequence[InputSpec | None], params: dict[str, Any]) -> Graph:
    """The graph of `function(*inputs, **params)`, which returns a value or a tuple of values."""
    tracer = Tracer(inputs)
    with dispatch.executing(tracer):
        result = function(*tracer.symbols(), **params)
    results = result if isinstance(result, tuple) else (result,)
    tracer.graph.outputs = tuple(r.index for r in results)
    return tracer.graph


__all__ = ["Graph", "Node", "Symbol", "Tracer", "Value", "trace"]
