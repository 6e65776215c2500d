"""Gradient rules: an op's own, or one derived from its decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyhal.autograd.ownership import share, share_repeated
from polyhal.autograd.slices import Gradient, SliceSum
from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops import FUNCTIONS, OPS

if TYPE_CHECKING:
    from polyhal.autograd.tape import Edge, GradNode
    from polyhal.hal.device import Device
    from polyhal.hal.ops.opdef import GradientRule, OpDef
    from polyhal.tensor import Tensor

_cast, _full, _sum_to = (FUNCTIONS[n] for n in ("cast", "full", "sum_to"))
_SLICE = OPS["slice"]

Gradients = tuple["Gradient | None", ...]


def zeros(spec: Spec, device: Device) -> Tensor:
    """A zero gradient for a value of `spec`."""
    result: Tensor = _full(spec.shape, 0, spec.dtype, device=device)
    return result


def zeros_like(x: Tensor) -> Tensor:
    """Zeros in the shape and dtype and on the device of `x`, which may stand for a batch."""
    result: Tensor = _full(x.shape, 0, x.dtype, device=x.device)
    return result


def input_gradients(node: GradNode, grads: list[Tensor | None]) -> list[tuple[Edge, Gradient]]:
    """Return the gradient of each input that needs one, in its shape and dtype, and where the gradient goes.

    `grads` are the gradients of the outputs, None if nothing flowed in.
    """
    node.restore()
    previous, dispatch.thread.device = dispatch.thread.device, node.device
    try:
        gradients = _apply_rule(node, grads)
    finally:
        dispatch.thread.device = previous
    gradients += (None,) * (len(node.parents) - len(gradients))
    found: list[tuple[Edge, Gradient]] = [
        (parent, g if isinstance(g, SliceSum) else _fitted(g, spec))
        for parent, spec, g in zip(node.parents, node.specs, gradients, strict=True)
        if parent is not None and spec is not None and g is not None
    ]
    if len(found) > 1:
        share_repeated((edge, g) for edge, g in found if not isinstance(g, SliceSum))
    return found


def _fitted(g: Tensor, spec: Spec) -> Tensor:
    """A gradient summed over broadcast axes and cast, as its input is."""
    if g.shape != spec.shape:
        g = _sum_to(g, spec.shape)
    return g if g.dtype is spec.dtype else _cast(g, spec.dtype)


def _apply_rule(node: GradNode, grads: list[Tensor | None]) -> Gradients:
    op = node.op
    if node.rule is not None:
        result = _apply_own_rule(node, node.rule, grads)
    elif op is _SLICE:
        return _slice_gradient(node, grads)
    elif op.gradient is None or _reaches_further_outputs(op, op.gradient, grads):
        return _derived(node, grads)
    else:
        rule = op.gradient
        values = [_argument(node, name, grads) for name in rule.needs]
        bound = op.bind(node.params)
        # Its indices, which it saved, were looked at when it ran.
        before, dispatch.thread.indices_checked = dispatch.thread.indices_checked, op.index_range is not None
        try:
            result = rule.function(*values, **{name: bound[name] for name in rule.params})
        finally:
            dispatch.thread.indices_checked = before
    return result if isinstance(result, tuple) else (result,)


def _apply_own_rule(node: GradNode, rule: Callable[..., Any], grads: list[Tensor | None]) -> Any:
    """Apply the rule of a custom function, which may keep what it is called with and what it returns."""
    if node.fresh:
        return rule(node, grads, _needs(node))
    for g in grads:
        if g is not None:
            share(g)
    result = rule(node, grads, _needs(node))
    for g in result if isinstance(result, tuple) else (result,):
        if hasattr(g, "ref"):
            share(g)
    return result


def _slice_gradient(node: GradNode, grads: list[Tensor | None]) -> Gradients:
    """The gradient of a slice, to be joined with those of other slices of the same tensor."""
    spec, g = (_argument(node, name, grads) for name in ("x_spec", "g"))
    bound = node.op.bind(node.params)
    return (SliceSum(spec, g, bound["starts"], bound["steps"]),)


def _needs(node: GradNode) -> tuple[bool, ...]:
    return tuple(p is not None for p in node.parents)


def _reaches_further_outputs(op: OpDef, rule: GradientRule, grads: list[Tensor | None]) -> bool:
    """Whether gradients came in through outputs that the rule does not ask for, such as the statistics of a norm.

    They do when a gradient is differentiated again, because the rule reads what the forward pass saved.
    """
    if op.decompose is None or len(grads) == 1:
        return False
    asked = {name[2:] for name in rule.needs if name.startswith("g_")}
    return any(g is not None and name not in asked for name, g in zip(op.schema.outputs[1:], grads[1:], strict=False))


def _argument(node: GradNode, name: str, grads: list[Tensor | None]) -> Any:
    """The argument of a gradient rule called `name`: a saved value, a gradient, the needs, or a spec."""
    op = node.op
    if name in node.saved or node.freed:
        return node.load(name)
    if name == "g":
        return grads[0] if grads[0] is not None else zeros(node.outputs[0], node.device)
    if name == "needs":
        return _needs(node)
    if name.startswith("g_"):
        return grads[op.schema.outputs.index(name[2:])]
    base = name.removesuffix("_specs").removesuffix("_spec")
    if op.schema.variadic:
        return tuple(node.specs)
    return node.specs[op.schema.inputs.index(base)]


def _derived(node: GradNode, grads: list[Tensor | None]) -> Gradients:
    """Run the decomposition again on the saved inputs, with a tape, and differentiate that."""
    from polyhal.autograd.engine import differentiate
    from polyhal.hal.planning.decompose import decomposition

    if node.op.decompose is None:
        raise AutogradError(message(node.op.name, "has neither a gradient rule nor a decomposition to derive one from"))
    needs = _needs(node)
    create_graph = dispatch.thread.grad_enabled
    saved = node.load("inputs")
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


def _leaf(x: Any) -> Any:
    out = x.detach()
    out.requires_grad = True
    return out


def _detached(x: Any) -> Any:
    return x.detach() if hasattr(x, "ref") else x


def _alias(x: Tensor) -> Tensor:
    """A distinct tensor that stands for `x` on the tape, so that its gradient here is separate from those of other paths."""
    result: Tensor = FUNCTIONS["reshape"](x, x.shape)
    return result
