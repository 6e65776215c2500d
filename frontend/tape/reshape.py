"""Changes of a tensor's own shape, as `x.t_()`: the tensor becomes a view of its own memory, with the view's place on the tape.

The elements stay where they are, so other views of the memory are not affected. An op that saved the tensor for its gradient
finds another shape in the backward pass, and raises an error then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, ShapeError, message
from polyhal.tape.rebase import detached_index

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_NO_RECORD = "tensors keep their shape in a captured step"


def reshape_in_place(method: str, x: Tensor, view_of: Callable[[Any], Any]) -> Any:
    """Make `x` the view of itself that `view_of` returns, and return it.

    Raises AutogradError for leaves that require gradients and inside `vmap`, CaptureError in a captured step, and ShapeError
    if the function returns no view.
    """
    _check(method, x)
    if x.requires_grad and x.node is None:
        problem = "cannot change the shape of a leaf that requires gradients in place"
        raise AutogradError(
            message(method, problem, fix="use the function that returns a view, without the underscore")
        )
    view = view_of(x)
    if view.buffer is not x.buffer:
        raise ShapeError(message(method, f"the result, of shape {view.shape}, is no view of the tensor"))
    if view is x:
        return x
    x.ref = view.ref
    if x.index >= 0 or view.node is not None:
        x.node, x.index, x.requires_grad = view.node, view.index, view.requires_grad
    _note(x)
    return x


def detach_in_place(x: Tensor) -> Tensor:
    """Take `x` itself off the tape. Raises AutogradError for views, whose later changes in place belong to the tape."""
    _check("detach_", x)
    if x.node is not None and x.node.is_view:
        problem = "the tensor is a view of another, whose history it shares"
        raise AutogradError(message("detach_", problem, fix="use .detach(), which returns a tensor off the tape"))
    if x.node is not None:
        x.index = detached_index()
    x.node, x.requires_grad = None, False
    dispatch.structure.changed()
    return x


def _check(method: str, x: Tensor) -> None:
    if x.is_batched:
        problem = "the shape of a tensor inside vmap cannot be changed in place"
        raise AutogradError(message(method, problem, fix="use the function without the underscore"))
    dispatch.require_execution(method, _NO_RECORD, fix="use the function without the underscore")


def _note(x: Tensor) -> None:
    """Count a version that changed no element, so that saved tensors are looked at again before they are used."""
    buffer = x.buffer
    buffer.version += 1
    if not hasattr(buffer, "reshapes"):
        buffer.reshapes = set()
    buffer.reshapes.add(buffer.version)
