"""Gradient rules: an op's own, or one derived from its decomposition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.autograd.ownership import share, share_repeated
from polyhal.autograd.slices import Gradient, SliceSum
from polyhal.hal import dispatch
from polyhal.hal.layout import Spec
from polyhal.hal.ops import FUNCTIONS, OPS

if TYPE_CHECKING:
    from polyhal.autograd.paths import Paths
    from polyhal.autograd.tape import Edge, GradNode
    from polyhal.hal.device import Device
    from polyhal.hal.ops.gradient_rule import GradientRule
    from polyhal.hal.ops.opdef import OpDef
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


def input_gradients(
    node: GradNode, grads: list[Tensor | None], paths: Paths | None = None
) -> list[tuple[Edge, Gradient]]:
    """Return the gradient of each input that needs one, in its shape and dtype, and where the gradient goes.

    `grads` are the gradients of the outputs, None for an output without one. With `paths`, only inputs on them need a gradient.
    """
    parents = node.parents if paths is None else [p if paths.follows(p) else None for p in node.parents]
    needs = tuple(p is not None for p in parents)
    node.restore()
    previous, dispatch.thread.device = dispatch.thread.device, node.device
    try:
        gradients = _apply_rule(node, grads, needs)
        if dispatch.thread.grad_enabled and node.rule is None and node.op.gradient and node.op.gradient.follows:
            gradients = _following(gradients, node.op.gradient.follows, parents, node.specs)
    finally:
        dispatch.thread.device = previous
    found: list[tuple[Edge, Gradient]] = []
    for parent, spec, g in zip(parents, node.specs, gradients, strict=False):  # a rule may leave out the last inputs
        if parent is not None and spec is not None and g is not None:
            found.append((parent, g if isinstance(g, SliceSum) else _fitted(g, spec)))
    if len(found) > 1:
        share_repeated(found)
    return found


def _following(
    gradients: Gradients, follows: dict[int, bool], parents: list[Edge | None], specs: list[Spec | None]
) -> Gradients:
    from polyhal.autograd.followers import following  # most programs differentiate once

    made = list(gradients)
    for i, zeros in follows.items():
        edge, spec, g = parents[i], specs[i], made[i] if i < len(made) else None
        if edge is not None and spec is not None and g is not None:
            made[i] = following(_fitted(g, spec), edge, spec, zeros=zeros)
    return tuple(made)


def _fitted(g: Tensor, spec: Spec) -> Tensor:
    """A gradient summed over broadcast axes and cast, as its input is."""
    if g.shape != spec.shape:
        g = _sum_to(g, spec.shape)
    return g if g.dtype is spec.dtype else _cast(g, spec.dtype)


def _apply_rule(node: GradNode, grads: list[Tensor | None], needs: tuple[bool, ...]) -> Gradients:
    op, rule = node.op, node.op.gradient
    if node.rule is not None:
        result = _apply_own_rule(node, node.rule, grads, needs)
    elif op is _SLICE:
        return _slice_gradient(node, grads)
    elif rule is None or _reaches_further_outputs(op, rule, grads):
        from polyhal.autograd.derived import derived_gradients  # most programs need none

        return derived_gradients(node, grads, needs)
    else:
        node.require_tape()
        # Its indices, which it saved, were looked at when it ran.
        before, dispatch.thread.indices_checked = dispatch.thread.indices_checked, op.index_range is not None
        try:
            params = op.bind(node.params) if rule.params else {}
            result = rule.apply(partial(_argument, node, grads, needs), needs, params)
        finally:
            dispatch.thread.indices_checked = before
    return result if isinstance(result, tuple) else (result,)


def _apply_own_rule(
    node: GradNode, rule: Callable[..., Any], grads: list[Tensor | None], needs: tuple[bool, ...]
) -> Any:
    """Apply the rule of a custom function, which may keep its arguments and results."""
    if node.fresh:
        return rule(node, grads, needs)
    for g in grads:
        if g is not None:
            share(g)
    result = rule(node, grads, needs)
    for g in result if isinstance(result, tuple) else (result,):
        if hasattr(g, "ref"):
            share(g)
    return result


def _slice_gradient(node: GradNode, grads: list[Tensor | None]) -> Gradients:
    """The gradient of a slice, to be joined with those of other slices of the same tensor."""
    node.require_tape()
    spec, g = (_argument(node, grads, (True,), name) for name in ("x_spec", "g"))
    bound = node.op.bind(node.params)
    return (SliceSum(spec, g, bound["starts"], bound["steps"]),)


def _reaches_further_outputs(op: OpDef, rule: GradientRule, grads: list[Tensor | None]) -> bool:
    """Whether gradients came in through outputs that the rule does not ask for, such as the statistics of a norm.

    They do when a gradient is differentiated again, because the rule reads what the forward pass saved.
    """
    return op.decompose is not None and any(grads[i] is not None for i in rule.unnamed_outputs)


def _argument(node: GradNode, grads: list[Tensor | None], needs: tuple[bool, ...], name: str) -> Any:
    """The argument of a gradient rule called `name`: a saved value, a gradient, the needs, or a spec.

    None for a value that was not saved, because no needed gradient reads it.
    """
    if name == "g":
        return grads[0] if grads[0] is not None else zeros(node.outputs[0], node.device)
    if name in node.saved:
        return node.load(name)
    op = node.op
    if name in op.schema.inputs or name in op.schema.outputs:
        return None
    if name == "needs":
        return needs
    if name.startswith("g_"):
        return grads[op.schema.outputs.index(name[2:])]
    base = name.removesuffix("_specs").removesuffix("_spec")
    if op.schema.variadic:
        return tuple(node.specs)
    return node.specs[op.schema.inputs.index(base)]
