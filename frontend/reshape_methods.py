"""Methods of tensors that change their own shape, and their own place on the tape, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from polyhal.hal.ops import METHODS

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


def _in_place(name: str) -> Callable[..., Any]:
    function = METHODS[name]

    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        from polyhal.autograd.reshape import reshape_in_place

        return reshape_in_place(f"{name}_", self, lambda x: function(x, *args, **keywords))

    method.__name__ = f"{name}_"
    method.__doc__ = (
        f"Become the view of the same memory that `{name}` returns.\n\n"
        "Raises AutogradError for leaves that require gradients, and CaptureError in a captured step."
    )
    return method


class ReshapeMethods:
    """Changes of a tensor's own shape, strides and history. None writes an element."""

    __slots__ = ()

    if TYPE_CHECKING:

        def squeeze_(self, *args: Any, **keywords: Any) -> Self:
            """Remove axes of length 1 of the tensor itself. Raises AutogradError for leaves that require gradients."""

        def swapaxes_(self, *args: Any, **keywords: Any) -> Self:
            """Swap two axes of the tensor itself. Raises AutogradError for leaves that require gradients."""

        def swapdims_(self, *args: Any, **keywords: Any) -> Self:
            """`swapaxes_` by PyTorch's other name. Raises AutogradError for leaves that require gradients."""

        def t_(self, *args: Any, **keywords: Any) -> Self:
            """Transpose a matrix of the tensor itself. Raises AutogradError for leaves that require gradients."""

        def transpose_(self, *args: Any, **keywords: Any) -> Self:
            """Swap two axes of the tensor itself. Raises AutogradError for leaves that require gradients."""

        def unsqueeze_(self, *args: Any, **keywords: Any) -> Self:
            """Insert an axis of length 1 of the tensor itself. Raises AutogradError for leaves that require gradients."""

    else:
        squeeze_, swapaxes_, swapdims_ = _in_place("squeeze"), _in_place("swapaxes"), _in_place("swapdims")
        t_, transpose_, unsqueeze_ = _in_place("t"), _in_place("transpose"), _in_place("unsqueeze")

    def detach_(self: Any) -> Any:
        """Take the tensor itself off the tape. Raises AutogradError for views."""
        from polyhal.autograd.reshape import detach_in_place

        return detach_in_place(self)

    def is_same_size(self: Any, other: Tensor) -> bool:
        """Return whether another tensor has the same shape."""
        return bool(self.shape == other.shape)
