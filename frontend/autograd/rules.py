"""Applying an op's gradient rule, or deriving one from its decomposition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.planning.decompose import decomposition

if TYPE_CHECKING:
    from polyhal.autograd.tape import Node
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.tensor import Tensor

_full = FUNCTIONS["full"]


def zeros(spec: Spec, device: Any) -> Tensor:
    """A zero gradient for a value of `spec`."""
    result: Tensor = _full(spec.shape, 0, spec.dtype, device=device)
    return result


def input_gradients(node: Node, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The gradient of each input of `node`, given those of its outputs (None where nothing flowed in)."""
    node.restore()
    with dispatch.default_device(node.device):
        return _input_gradients(node, grads)


def _input_gradients(node: Node, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    op = node.op
    needs = tuple(p is not None for p in node.parents)
    if node.rule is not None:
        result = node.rule(node, grads, needs)
    elif op.gradient is None or _reaches_further_outputs(op, grads):
        return _derived(node, grads, needs)
    else:
        values = [_value(node, name, grads, needs) for name in op.needs]
        bound = op.bind(node.params)
        result = op.gradient(*values, **{name: bound[name] for name in op.gradient_params})
    found = result if isinstance(result, tuple) else (result,)
    if len(found) < len(node.parents):
        found = (*found, *[None] * (len(node.parents) - len(found)))
    return found


def _reaches_further_outputs(op: OpDef, grads: list[Tensor | None]) -> bool:
    """Whether gradients came in through outputs that the rule does not ask for, such as the statistics of a norm.

    They do when a gradient is differentiated again, because the rule reads what the forward pass kept.
    """
    asked = {name[2:] for name in op.needs if name.startswith("g_")}
    return op.decompose is not None and any(
        g is not None and name not in asked for name, g in zip(op.outputs[1:], grads[1:], strict=False)
    )


def _input_spec(x: Any) -> Any:
    if x is None:
        return None
    return x.spec if hasattr(x, "ref") else ScalarSpec(dispatch.scalar_dtype(x))


def _value(node: Node, name: str, grads: list[Tensor | None], needs: tuple[bool, ...]) -> Any:
    op = node.op
    if name in node.saved or node.freed:
        return node.load(name)
    if name == "g":
        return grads[0] if grads[0] is not None else zeros(node.outputs[0], node.device)
    if name == "needs":
        return needs
    if name.startswith("g_"):
        return grads[op.outputs.index(name[2:])]
    base = name.removesuffix("_specs").removesuffix("_spec")
    if op.variadic:
        return tuple(node.specs)
    return node.specs[op.inputs.index(base)]


def _derived(node: Node, grads: list[Tensor | None], needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """Run the decomposition again on the saved inputs, with a tape, and go back through that."""
    from polyhal.autograd.engine import differentiate

    if node.op.decompose is None:
        raise AutogradError(message(node.op.name, "has neither a gradient rule nor a decomposition to derive one from"))
    create_graph = dispatch.thread.grad_enabled
    saved = node.load("inputs")
    # Without create_graph fresh leaves keep the pass local; with it the originals connect it to the rest of the tape.
    inputs = [_leaf(x) if needed else _cut(x) for x, needed in zip(saved, needs, strict=True)]
    if create_graph:
        inputs = [_alias(x) if needed else x for x, needed in zip(saved, needs, strict=True)]
    previous, dispatch.thread.grad_enabled = dispatch.thread.grad_enabled, True
    try:
        bound = node.op.bind(node.params)
        dispatch.infer(node.op, tuple(_input_spec(x) for x in saved), bound)
        outs = decomposition(node.op, tuple(node.outputs))(*inputs, **bound)
    finally:
        dispatch.thread.grad_enabled = previous
    pairs = [(o, g) for o, g in zip(outs, grads, strict=True) if g is not None and o.requires_grad]
    wanted = [x for x, needed in zip(inputs, needs, strict=True) if needed]
    if not pairs:
        return tuple(None for _ in inputs)
    found = iter(
        differentiate(
            [o for o, _ in pairs], [g for _, g in pairs], wanted, create_graph=create_graph, retain_graph=create_graph
        )
    )
    return tuple(next(found) if needed else None for needed in needs)


def _leaf(x: Any) -> Any:
    out = x.detach()
    out.requires_grad = True
    return out


def _cut(x: Any) -> Any:
    return x.detach() if hasattr(x, "ref") else x


def _alias(x: Tensor) -> Tensor:
    """A distinct tensor that stands for `x` on the tape, so that its gradient here can be told from other paths."""
    result: Tensor = FUNCTIONS["reshape"](x, x.shape)
    return result
