"""Decompositions: a resolution step, which resolves the ops of a decomposition in turn, and calls op by op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.compile.planning.request import Request, Resolved
from polyhal.hal.compile.planning.resolution import Resolution, ResolutionStep
from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.op_plan import Run
from polyhal.hal.layout import ScalarSpec, Spec, contiguous
from polyhal.hal.ops.lowering import Decompose
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.traits import Trait

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Graph
    from polyhal.hal.compile.planning.planner import Planner
    from polyhal.hal.ops.schema import Inputs, ParamValues
    from polyhal.hal.ops.tensor_like import TensorLike

_HALF = (dtypes.float16, dtypes.bfloat16)


def decomposed(planner: Planner, request: Request) -> Resolved | None:
    """Trace the decomposition and resolve its ops; None if the device does not store a dtype of its temporaries."""
    from polyhal.hal.compile.ir.trace import trace

    op, inputs, outputs, params, _, resolution, _ = request
    graph = trace(decomposition(op, outputs), inputs, params, planner.device.stand_ins)
    storage = planner.device.capabilities.storage
    made = (graph.specs[v] for node in graph.nodes for v in node.outputs)
    missing = {s.dtype.name for s in made if s is not None and s.dtype not in storage}
    if missing:
        resolution.skipped.append(
            f"decomposition: it needs {', '.join(sorted(missing))}, which the device does not store"
        )
        return None
    run = interpreted(planner, request, graph)
    resolution.step, resolution.how = ResolutionStep.COMPOSED, f"decomposed into {len(graph.nodes)} ops"
    return run, None


def _mark_unaligned(graph: Graph, values: set[int]) -> None:
    """Mark values that are written to unaligned outputs, and their views."""
    for node in graph.nodes:
        values.update(node.outputs if graph.viewed(node) in values else ())
    for value in values:
        graph.specs[value] = graph.tensor(value)._replace(aligned=False)


def interpreted(planner: Planner, request: Request, graph: Graph) -> Run:
    """Return a run of all nodes in order. Nodes with equal signatures are resolved once.

    The graph's first outputs are the request's.
    """
    from polyhal.hal.compile.planning.interpreter import GraphInterpreter, nodes_in_place

    _mark_unaligned(graph, {v for v, output in zip(graph.outputs, request.outputs, strict=False) if not output.aligned})
    runs: list[Run | None] = []
    resolved: dict[Any, tuple[Run, Resolution]] = {}
    in_place = nodes_in_place(graph, request.aliases)
    for k, node in enumerate(graph.nodes):
        if graph.is_view(node):
            runs.append(None)
            continue
        if k in in_place:
            inputs, aliases = tuple(graph.spec_of(x) for x in node.inputs), (0,)
            run, _, part = planner.resolve(
                node.op, inputs, graph.output_specs(node), node.bound, aliases, request.on_device
            )
            request.resolution.parts.append(part)
            runs.append(run)
            continue
        signature = graph.signature(node)
        if signature not in resolved:
            resolved[signature] = planner.resolve_part(signature, node.bound, request.on_device)
        run, part = resolved[signature]
        request.resolution.parts.append(part)
        runs.append(run)
    return GraphInterpreter(graph, runs, request.aliases, planner.device, in_place).run


def decomposition(op: OpDef, outputs: tuple[Spec, ...]) -> Callable[..., Any]:
    """Return the op's decomposition on widened half-precision inputs, with results cast to the declared dtypes."""
    strategy = op.strategy(Decompose)
    if strategy is None:
        raise ValueError(f"op {op.name} has no decomposition")

    def run(*values: Any, **params: Any) -> tuple[Any, ...]:
        if Trait.POINTWISE in op.traits:
            values = _operands(op, values, strategy.widen)
        if strategy.widen:
            values = tuple(v.cast(dtype=dtypes.float32) if _is_half(v) else v for v in values)
        result = strategy.function(*values, **params)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(r if r.dtype is s.dtype else r.cast(dtype=s.dtype) for r, s in zip(results, outputs, strict=True))

    return run


def composed(op: OpDef, inputs: Inputs, params: ParamValues, numbers: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Call an op as the ops of its decomposition. `numbers` replace parameters that are known only in a run, by name."""
    bound = op.bind(dispatch.freeze(params))
    specs = tuple(dispatch.inference_spec(x) for x in inputs)
    device = next(x.device for x in inputs if hasattr(x, "ref"))
    outputs = tuple(contiguous(d, s) for d, s in dispatch.infer(op, specs, bound, device.stand_ins))
    previous, dispatch.thread.device = dispatch.thread.device, device
    try:
        results = decomposition(op, outputs)(*inputs, **{**bound, **numbers})
    finally:
        dispatch.thread.device = previous
    return results if op.schema.returns_tuple else results[0]


def _is_half(x: TensorLike) -> bool:
    return hasattr(x, "spec") and isinstance(x.spec, Spec) and x.dtype in _HALF


def _operands(op: OpDef, values: tuple[Any, ...], widen: bool) -> tuple[Any, ...]:
    """Convert the operands of an elementwise op for its decomposition.

    Numbers become tensors of one element in the operands' dtype, because the decomposition would otherwise evaluate
    subexpressions of numbers in the default dtype. With widened half precision they become float32, since half precision
    represents few numbers exactly. For an op that computes in another kind, mostly floating point, tensors of other kinds are
    cast as well: `-x` of an unsigned integer would wrap.
    """
    from polyhal.hal.ops.layout.creation import broadcast_scalar
    from polyhal.hal.ops.pointwise.promotion import operand_dtype

    specs: list[Any] = []
    for v in values:
        if v is None or not hasattr(v, "spec"):
            specs.append(None if v is None else ScalarSpec(dispatch.scalar_dtype(v)))
        else:
            specs.append(v.spec)
    dtype = operand_dtype(op, tuple(specs))
    lifted = op.promotion in ("float", "number") and any(
        isinstance(s, Spec) and s.dtype.kind != dtype.kind for s in specs
    )
    if not lifted and not any(isinstance(s, ScalarSpec) for s in specs):
        return values

    def operand(v: Any, s: Any) -> Any:
        if isinstance(s, ScalarSpec):
            return broadcast_scalar(v, (), dtypes.float32 if widen and dtype in _HALF else dtype)
        return v.cast(dtype=dtype) if lifted and s is not None and s.dtype.kind != dtype.kind else v

    return tuple(operand(v, s) for v, s in zip(values, specs, strict=True))
