"""Gradients that are derived from an op's decomposition, and the inputs that they need.

The backward pass runs the decomposition again on the saved inputs, with a tape of its own. A trace of the decomposition, made
once per op, parameters and specs, shows which inputs this tape reads. The others are not saved: ones replace them.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.graph import Value
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.compile.planning.decompose import decomposition
from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.tape.tape import may_use_decomposition

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Graph, Node
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Spec
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import ParamValues
    from polyhal.tape.tape import GradNode
    from polyhal.tensor import Tensor

_broadcast_to, _full, _reshape = (FUNCTIONS[n] for n in ("broadcast_to", "full", "reshape"))


class Unsaved:
    """Placeholder for an input that no gradient reads."""

    __slots__ = ()


UNSAVED = Unsaved()
_CACHED = 1024


@lru_cache(_CACHED)
def inputs_read(op: OpDef, specs: tuple[Any, ...], params: ParamValues, outputs: tuple[Spec, ...], mask: int) -> int:
    """Return the inputs, as bits, that the derived gradients of the inputs in `mask` read."""
    bound = op.bind(params)
    dispatch.infer(op, specs, bound)
    graph = trace(decomposition(op, outputs), specs, bound)
    sources = {i: 1 << i for i in range(len(specs))}  # for each value, the inputs that it is computed from
    moving = {i for i in range(len(specs)) if mask >> i & 1}  # values that depend on an input in `mask`
    read = 0
    for node in graph.nodes:
        sources |= dict.fromkeys(node.outputs, reduce(or_, (sources[v] for v in node.reads), 0))
        own = sum(1 << i for i, x in enumerate(node.inputs) if isinstance(x, Value) and x.index in moving)
        if own and graph.tensor(node.outputs[0]).dtype.kind == "float":
            moving |= {v for v in node.outputs if graph.tensor(v).dtype.kind == "float"}
            for v in _saved_values(graph, node, own):
                read |= sources[v]
    return read


def _saved_values(graph: Graph, node: Node, mask: int) -> list[int]:
    """Return the values of a node that a tape keeps for the gradients of the inputs in `mask`."""
    op = node.op
    chosen: list[Any] = []
    if op.gradient is not None:
        saved = op.gradient.saved[1 if op.schema.variadic else mask]
        chosen += node.inputs if op.schema.variadic and saved.inputs else [node.inputs[i] for _, i in saved.inputs]
        chosen += [Value(node.outputs[i]) for _, i in saved.outputs]
    outputs = graph.output_specs(node)
    if op.decompose is not None and may_use_decomposition(op, outputs):
        read = inputs_read(op, tuple(graph.spec_of(x) for x in node.inputs), node.params, outputs, mask)
        chosen += [x for i, x in enumerate(node.inputs) if read >> i & 1]
    return [x.index for x in chosen if isinstance(x, Value)]


def derived_gradients(node: GradNode, grads: list[Tensor | None], needs: tuple[bool, ...]) -> tuple[Any, ...]:
    """Run the decomposition again on the saved inputs, with a tape, and differentiate that."""
    from polyhal.tape.engine import differentiate

    if node.op.decompose is None:
        problem = "has neither a gradient rule nor a decomposition to derive one from"
        raise AutogradError(message(node.op.name, problem, fix="use detach() or no_grad() for a constant"))
    create_graph = dispatch.thread.grad_enabled
    saved = [
        _stand_in(spec, node.device) if x is UNSAVED else x
        for x, spec in zip(node.load_inputs(), node.specs, strict=True)
    ]
    # Without create_graph fresh leaves keep the pass local; with it the originals connect it to the rest of the tape.
    if create_graph:
        inputs = [_alias(x) if needed else x for x, needed in zip(saved, needs, strict=True)]
    else:
        inputs = [_leaf(x) if needed else _detached(x) for x, needed in zip(saved, needs, strict=True)]
    dispatch.thread.grad_enabled = True
    try:
        bound = node.op.bind(node.params)
        dispatch.infer(node.op, tuple(dispatch.inference_spec(x) for x in saved), bound)
        outs = decomposition(node.op, tuple(node.outputs))(*inputs, **bound)
    finally:
        dispatch.thread.grad_enabled = create_graph
    pairs = [(o, g) for o, g in zip(outs, grads, strict=True) if g is not None and o.requires_grad]
    if not pairs:
        return ()
    outputs, seeds = zip(*pairs, strict=True)
    targets = [x for x, needed in zip(inputs, needs, strict=True) if needed]
    gradients = iter(differentiate(outputs, seeds, targets, create_graph=create_graph, retain_graph=create_graph))
    return tuple(next(gradients) if needed else None for needed in needs)


def _stand_in(spec: Any, device: Device) -> Tensor:
    """Return ones in the memory of a single element."""
    result: Tensor = _broadcast_to(_full((), 1, spec.dtype, device=device), spec.shape)
    return result


def _leaf(x: Tensor) -> Any:
    out = x.detach()
    out.requires_grad = True
    return out


def _detached(x: Any) -> Any:
    return x.detach() if hasattr(x, "ref") else x


def _alias(x: Tensor) -> Tensor:
    """Return a view of `x` with a node of its own, so that its gradient here is separate from the gradients of other paths."""
    result: Tensor = _reshape(x, x.shape)
    result.requires_grad = True
    return result
