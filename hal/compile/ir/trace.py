"""Tracing: a Python function called on symbols, whose ops are recorded instead of run.

Decompositions become graphs in this way when they are planned, and formulas become the patterns that passes match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.graph import Graph, Value, infer_results
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec
from polyhal.hal.ops.methods import Methods
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.protocol import InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Inputs, Params, ParamValues


class Symbol(Methods):
    """A value during tracing: has a spec and no data, and takes part in ops like a tensor."""

    __slots__ = ("index", "spec", "tracer")

    def __init__(self, tracer: Tracer, index: int, spec: InputSpec) -> None:
        self.tracer = tracer
        self.index = index
        self.spec = spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """Dtype of the value."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.spec.shape)


class Tracer(dispatch.ForwardingExecutor):
    """An executor that records ops instead of running them."""

    __slots__ = ("graph", "stand_ins")

    def __init__(self, inputs: Sequence[InputSpec | None], stand_ins: Mapping[DType, DType] | None = None) -> None:
        super().__init__(dispatch.thread.executor)
        self.stand_ins = stand_ins
        self.graph = Graph(inputs)

    def symbols(self) -> list[Symbol | None]:
        """The graph's inputs; None where an optional input is absent."""
        return [None if s is None else Symbol(self, i, s) for i, s in enumerate(self.graph.specs)]

    def apply(self, op: OpDef, inputs: Inputs, params: ParamValues, device: object = None) -> Any:
        """Record one op; the executor interface of `dispatch`."""
        params = dispatch.freeze(params)
        specs = tuple(_spec(x) for x in inputs)
        operands = tuple(Value(x.index) if isinstance(x, Symbol) else x for x in inputs)
        bound = op.bind(params)
        results, view = infer_results(op, specs, bound, self.stand_ins)
        if view is None and op.view is not None and op.regions is None:
            from polyhal.hal.ops.layout.views import contiguous as make_contiguous

            return self.apply(op, (make_contiguous(inputs[0]),), params)
        outputs = self.graph.add(op, operands, tuple(bound.values()), results)
        symbols = tuple(Symbol(self, i, spec) for i, spec in zip(outputs, results, strict=True))
        return symbols if op.schema.returns_tuple else symbols[0]


def _spec(x: Any) -> InputSpec | None:
    if x is None:
        return None
    if isinstance(x, Symbol):
        return x.spec
    return ScalarSpec(dispatch.scalar_dtype(x))


def trace(
    function: Callable[..., Any],
    inputs: Sequence[InputSpec | None],
    params: Params,
    stand_ins: Mapping[DType, DType] | None = None,
) -> Graph:
    """Return the graph of `function(*inputs, **params)`, which returns a value or a tuple of values.

    `stand_ins` are the device's (see `Device.stand_ins`).
    """
    tracer = Tracer(inputs, stand_ins)
    with dispatch.executing(tracer):
        result = function(*tracer.symbols(), **params)
    results = result if isinstance(result, tuple) else (result,)
    tracer.graph.outputs = tuple(r.index for r in results)
    return tracer.graph


__all__ = ["Symbol", "Tracer", "trace"]
