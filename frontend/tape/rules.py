"""Gradient rules: an op's own, or one derived from its decomposition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.layout import Spec
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.ops.gradient_rule import GradientRule, RuleArgument, RuleArgumentKind, RulePart
from polyhal.tape.ownership import share, share_repeated
from polyhal.tape.slices import Gradient, SliceSum

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.tape.paths import Paths
    from polyhal.tape.tape import Edge, GradNode
    from polyhal.tensor import Tensor

_cast, _full, _sum_to = (FUNCTIONS[n] for n in ("cast", "full", "sum_to"))
_SLICE = OPS["slice"]
_SAVED, _RESULT_GRADIENT = RuleArgumentKind.SAVED, RuleArgumentKind.RESULT_GRADIENT
_NO_PARAMS: Mapping[str, Any] = {}

Gradients = tuple["Gradient | None", ...]
Parents = Sequence["Edge | None"]
"""The edge of each input; None for an input that needs no gradient."""


def zeros(spec: Spec, device: Device) -> Tensor:
    """Return a zero gradient for a value of `spec`."""
    result: Tensor = _full(spec.shape, 0, spec.dtype, device=device)
    return result


def zeros_like(x: Tensor) -> Tensor:
    """Return zeros in the shape and dtype and on the device of `x`, which may be a batched tensor of `vmap`."""
    result: Tensor = _full(x.shape, 0, x.dtype, device=x.device)
    return result


def input_gradients(
    node: GradNode, grads: list[Tensor | None], paths: Paths | None = None
) -> list[tuple[Edge, Gradient]]:
    """Return the gradient of each input that needs one, in its shape and dtype, and where the gradient goes.

    `grads` are the gradients of the outputs, None for an output without one. With `paths`, only inputs on them need a gradient.
    """
    parents: Parents = node.parents if paths is None else [p if paths.follows(p) else None for p in node.parents]
    thread = dispatch.thread
    previous, thread.device = thread.device, node.device
    try:
        gradients = _apply_rule(node, grads, parents)
        rule = node.op.gradient
        if thread.grad_enabled and node.rule is None and rule and (rule.follows or rule.linear):
            gradients = _following(gradients, node, rule, parents)
    finally:
        thread.device = previous
    found: list[tuple[Edge, Gradient]] = []
    for parent, spec, g in zip(parents, node.specs, gradients, strict=False):  # a rule may leave out the last inputs
        if parent is not None and spec is not None and g is not None:
            found.append((parent, g if type(g) is SliceSum or g.ref.spec is spec else _fitted(g, spec)))
    if len(found) > 1:
        share_repeated(found)
    return found


def _following(gradients: Gradients, node: GradNode, rule: GradientRule, parents: Parents) -> Gradients:
    from polyhal.tape.followers import following  # most programs differentiate once

    made = list(gradients)
    joint = next((i for i in rule.linear if node.parents[i] is not None), None)
    for i, g in enumerate(made):
        spec, source = node.specs[i], i if i in rule.follows else joint
        if parents[i] is None or spec is None or g is None or source is None or isinstance(g, SliceSum):
            continue
        edge, of_edge = node.parents[source], node.specs[source]
        assert edge is not None
        assert of_edge is not None
        made[i] = following(_fitted(g, spec), edge, of_edge, zeros=i in rule.follows)
    return tuple(made)


def _fitted(g: Tensor, spec: Spec) -> Tensor:
    """Sum a gradient over broadcast axes, and cast it to the dtype of its input."""
    own = g.ref.spec
    if own.shape != spec.shape:
        g = _sum_to(g, spec.shape)
    return g if own.dtype is spec.dtype else _cast(g, spec.dtype)


def _apply_rule(node: GradNode, grads: list[Tensor | None], parents: Parents) -> Gradients:
    op, rule = node.op, node.op.gradient
    if node.rule is not None:
        return _tuple(_apply_own_rule(node, node.rule, grads, _needs(parents)))
    if op is _SLICE:
        return _slice_gradient(node, grads)
    # Gradients arrive at outputs that the rule does not name, such as the statistics of a norm, in a second differentiation,
    # because the rule reads saved values of the forward pass.
    if rule is None or (
        rule.unnamed_outputs and op.decompose is not None and any(grads[i] is not None for i in rule.unnamed_outputs)
    ):
        from polyhal.tape.derived import derived_gradients  # most programs need none

        return derived_gradients(node, grads, _needs(parents))
    if node.freed:
        node.require_tape()
    params = op.bind(node.params) if rule.params else _NO_PARAMS
    thread = dispatch.thread
    # Its indices, which it saved, were looked at when it ran.
    before, thread.indices_checked = thread.indices_checked, op.index_range is not None
    try:
        if rule.joint is not None:
            return _tuple(_call(rule.joint, node, grads, parents, params))
        return tuple(
            [
                None if part is None or parent is None else _call(part, node, grads, parents, params)
                for part, parent in zip(rule.parts, parents, strict=True)
            ]
        )
    finally:
        thread.indices_checked = before


def _tuple(result: Any) -> Gradients:
    return result if type(result) is tuple else (result,)


def _needs(parents: Parents) -> tuple[bool, ...]:
    return tuple([p is not None for p in parents])


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
    """Return the gradient of a slice, which is accumulated with the gradients of the tensor's other slices."""
    node.require_tape()
    g, spec, bound = grads[0], node.specs[0], node.op.bind(node.params)
    assert g is not None
    assert spec is not None
    return (SliceSum(spec, g, bound["starts"], bound["steps"]),)


def _call(
    part: RulePart, node: GradNode, grads: list[Tensor | None], parents: Parents, params: Mapping[str, Any]
) -> Any:
    """Call a function of the node's gradient rule."""
    values: list[Any] = []
    for argument in part.arguments:
        kind = argument.kind
        if kind is _RESULT_GRADIENT:
            g = grads[0]
            values.append(zeros(node.outputs[0], node.device) if g is None else g)
        elif kind is _SAVED:
            values.append(node.load(argument.name) if argument.name in node.saved else None)
        else:
            values.append(_value(argument, node, grads, parents))
    if part.params:
        return part.function(*values, **{name: params[name] for name in part.params})
    return part.function(*values)


def _value(argument: RuleArgument, node: GradNode, grads: list[Tensor | None], parents: Parents) -> Any:
    """Return the value of an argument that is neither saved nor the gradient of the result."""
    match argument.kind:
        case RuleArgumentKind.NEEDS:
            return _needs(parents)
        case RuleArgumentKind.OUTPUT_GRADIENT:
            return grads[argument.position]
        case RuleArgumentKind.SPECS:
            return tuple(node.specs)
    return node.specs[argument.position]
