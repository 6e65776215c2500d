"""Writes over the elements of a tensor. The tape refuses those that would invalidate a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.protocol import Number

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.tensor import Tensor


def check_in_place(x: Tensor, method: str) -> None:
    """Raise AutogradError, in the name of `method`, if a write to `x` would invalidate gradients on the tape."""
    if dispatch.thread.grad_enabled and x.requires_grad:
        kind = "a leaf that requires gradients" if x.node is None else "a result that is on the tape"
        raise AutogradError(
            message(
                method,
                f"cannot change {kind} in place",
                fix="do it under no_grad(), or use an op that returns a new tensor",
            )
        )


def overwrite(x: Tensor, value: Tensor) -> None:
    """Replace the elements of `x` by those of `value`, broadcast and cast."""
    check_in_place(x, "copy_")
    if value.shape != x.shape:
        value = FUNCTIONS["broadcast_to"](value, x.shape)
    dispatch.thread.executor.overwrite(x, value)


def fill(x: Tensor, value: Number) -> None:
    """Replace every element of `x` by a number."""
    check_in_place(x, "fill_")
    dispatch.thread.executor.overwrite(x, value)


def apply_in_place(method: str, op: OpDef, x: Tensor, other: Any) -> None:
    """Replace `x` by `op(x, other)`, which must have its shape and dtype; `other` may be a number or anything tensor-like."""
    from polyhal.tensor import as_tensor

    check_in_place(x, method)
    value = other if isinstance(other, (bool, int, float)) else as_tensor(other, x.device)
    dispatch.apply_into(op, (x.detach(), value), (), (x,))
