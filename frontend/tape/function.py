"""Custom functions: nodes of the tape with a gradient rule of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.schema import Schema
from polyhal.tape.modes import no_grad
from polyhal.tape.tape import GradNode, SavedInput

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.ops.schema import Inputs
    from polyhal.tensor import Tensor

Rule = Callable[[GradNode, "list[Tensor | None]", tuple[bool, ...]], Any]
"""Takes the node, the gradients of its outputs, and which inputs need one; returns one gradient per input, or None."""


class Context:
    """Context in which the forward pass of a custom function saves values for its backward pass."""

    def __init__(self) -> None:
        self._saved: tuple[SavedInput, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Save tensors for `backward`, which notices if one is changed in place later."""
        self._saved = tuple(SavedInput(t, t.buffer.version) for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """The tensors of `save_for_backward`. Raises AutogradError if one was changed since."""
        for s in self._saved:
            if s.tensor.buffer.version != s.version:
                raise AutogradError(
                    message("Function", "a tensor kept by save_for_backward was changed in place", fix="keep a clone")
                )
        return tuple(s.tensor for s in self._saved)


class Function:
    """Base of custom differentiable functions: define static `forward(ctx, ...)` and `backward(ctx, *grads)`, call `apply`.

    `forward` runs without the tape. `backward` returns one gradient, or None, per argument of `forward`; to be differentiable
    again, it must be made of Polyhal ops.
    """

    @staticmethod
    def forward(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        """Compute the result, or a tuple of results."""
        raise NotImplementedError("a Function defines forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        """Compute the gradient of each argument of `forward` from the gradients of the results."""
        raise NotImplementedError("a Function defines backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` and put one node on the tape."""
        context = Context()
        context.needs_input_grad = tuple(hasattr(a, "ref") and a.requires_grad for a in args)
        with no_grad():
            result = cls.forward(context, *args, **kwargs)
        if not (dispatch.thread.grad_enabled and any(context.needs_input_grad)):
            return result
        results = result if isinstance(result, tuple) else (result,)
        outs = tuple(o.detach() if any(o is a for a in args) else o for o in results)
        attach(opaque(cls.__name__, len(outs)), args, outs, cls._rule(context))
        return outs if isinstance(result, tuple) else outs[0]

    @classmethod
    def _rule(cls, context: Context) -> Rule:
        """Return the gradient rule of one call."""

        def rule(node: GradNode, grads: list[Tensor | None], needs: tuple[bool, ...]) -> Any:
            from polyhal.tape.rules import zeros

            filled = [zeros(s, node.device) if g is None else g for g, s in zip(grads, node.outputs, strict=True)]
            result = cls.backward(context, *filled)
            gradients = result if isinstance(result, tuple) else (result,)
            if len(gradients) != len(node.parents):
                raise AutogradError(
                    message(
                        cls.__name__,
                        f"backward returned {len(gradients)} gradients",
                        expected=f"{len(node.parents)}, one per argument of forward",
                    )
                )
            return gradients

        return rule


def attach(op: OpDef, inputs: Inputs, outs: tuple[Tensor, ...], rule: Rule, *, fresh: bool = False) -> GradNode:
    """Put a node with a rule of its own on the tape for `outs`; `op` is a declaration made by `opaque`.

    `fresh` says that the rule returns memory that nobody else keeps.
    """
    node = GradNode(op, inputs, (), outs)
    if (hooks := dispatch.thread.executor.tape_hooks) is not None:
        hooks.add_to_tape(node)
    node.saved.clear()
    node.rule = rule
    node.fresh = fresh
    for i, out in enumerate(outs):
        if out.dtype.is_floating_point:
            out.node, out.index, out.requires_grad = node, i, True
    return node


def opaque(name: str, outputs: int) -> OpDef:
    """Declare an op that only names a custom function on the tape."""

    def refuse(*args: Any, **params: Any) -> Any:
        raise AssertionError(f"{name} is no op and is never planned")

    schema = Schema(("xs",), variadic=True, outputs=tuple(f"out{i}" for i in range(outputs)))
    return OpDef(name=name, family="custom", doc="", schema=schema, infer=refuse, reference=refuse)


def transfer(x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
    """Copy to another device; the gradient, if there is one, is copied back. `non_blocking` is as in `Tensor.to`."""
    if x.dtype.is_complex:
        joined: Tensor = dispatch.frontend.join(
            transfer(x.real, device, non_blocking), transfer(x.imag, device, non_blocking)
        )
        return joined
    home = x.device
    out: Tensor = dispatch.thread.executor.transfer(x, device, non_blocking)
    if x.requires_grad and dispatch.thread.grad_enabled:
        copy_back: Rule = lambda node, grads, needs: (None if grads[0] is None else grads[0].to(home),)  # noqa: E731
        attach(opaque("to", 1), (x,), (out,), copy_back)
    return out
