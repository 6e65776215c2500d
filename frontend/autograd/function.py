"""Functions with a gradient of the user's own, and the few that the framework needs itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.autograd.modes import no_grad
from polyhal.autograd.tape import Node, SavedInput
from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.schema import Schema

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.tensor import Tensor


class Context:
    """What a custom function's forward hands to its backward."""

    def __init__(self) -> None:
        self._saved: tuple[SavedInput, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for `backward`; a later change in place is noticed."""
        self._saved = tuple(SavedInput(t, t.buffer.version) for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """What `save_for_backward` kept. Raises AutogradError if one was changed since."""
        for s in self._saved:
            if s.tensor.buffer.version != s.version:
                raise AutogradError(
                    message("Function", "a tensor kept by save_for_backward was changed in place", fix="keep a clone")
                )
        return tuple(s.tensor for s in self._saved)


class Function:
    """Base of custom differentiable functions: define static `forward(ctx, ...)` and `backward(ctx, *grads)`, call `apply`.

    `forward` runs without a tape. `backward` returns one gradient (or None) per argument of `forward`, made of Polyhal ops
    if it shall be differentiable again.
    """

    @staticmethod
    def forward(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a Function defines forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        raise NotImplementedError("a Function defines backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` and put one node on the tape."""
        context = Context()
        track = dispatch.thread.grad_enabled and any(hasattr(a, "ref") and a.requires_grad for a in args)
        context.needs_input_grad = tuple(hasattr(a, "ref") and a.requires_grad for a in args)
        with no_grad():
            result = cls.forward(context, *args, **kwargs)
        if not track:
            return result
        outs = tuple(
            o.detach() if any(o is a for a in args) else o for o in (result if isinstance(result, tuple) else (result,))
        )
        backward = cls.backward

        def rule(node: Node, grads: list[Tensor | None], needs: tuple[bool, ...]) -> Any:
            from polyhal.autograd.rules import zeros

            found = [zeros(s, node.device) if g is None else g for g, s in zip(grads, node.outputs, strict=True)]
            back = backward(context, *found)
            back = back if isinstance(back, tuple) else (back,)
            if len(back) != len(node.parents):
                raise AutogradError(
                    message(
                        cls.__name__,
                        f"backward returned {len(back)} gradients",
                        expected=f"{len(node.parents)}, one per argument of forward",
                    )
                )
            return back

        attach(opaque(cls.__name__, len(outs)), args, outs, rule)
        return outs if isinstance(result, tuple) else outs[0]


def attach(op: OpDef, inputs: tuple[Any, ...], outs: tuple[Tensor, ...], rule: Any) -> Node:
    """Put one node with a rule of its own on the tape for `outs`; `op` is what `opaque` gave."""
    node = Node(op, inputs, (), outs)
    dispatch.thread.executor.add_to_tape(node)
    node.saved.clear()
    node.rule = rule
    for i, out in enumerate(outs):
        if out.dtype.is_floating_point:
            out.node, out.index, out.requires_grad = node, i, True
    return node


def opaque(name: str, outputs: int) -> OpDef:
    """A declaration that only names a custom function on the tape."""

    def refuse(*args: Any, **params: Any) -> Any:
        raise AssertionError(f"{name} is no op and is never planned")

    schema = Schema(("xs",), variadic=True, outputs=tuple(f"out{i}" for i in range(outputs)))
    return OpDef(name=name, family="custom", doc="", schema=schema, infer=refuse, reference=refuse)


def transfer(x: Tensor, device: Device) -> Tensor:
    """Copy to another device; the gradient is copied back."""
    home = x.device
    out: Tensor = dispatch.thread.executor.transfer(x, device)
    attach(opaque("to", 1), (x,), (out,), lambda node, grads, needs: (None if grads[0] is None else grads[0].to(home),))
    return out
