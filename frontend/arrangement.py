"""Methods of tensors that take lengths or axes as separate arguments, transposes as properties, and PyTorch's `new_*`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyhal.hal.layout import Ref
from polyhal.hal.ops import FUNCTIONS

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_cast, _permute, _reshape = (FUNCTIONS[n] for n in ("cast", "permute", "reshape"))


def _sequence(items: tuple[Any, ...]) -> Any:
    """One sequence from separate arguments, or from a sequence as the only one."""
    return items[0] if len(items) == 1 and isinstance(items[0], (tuple, list)) else items


def _later(name: str) -> Callable[..., Any]:
    """A method that is a function of polyhal.creation, which imports the module of tensors."""

    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        from polyhal import creation

        return getattr(creation, name)(self, *args, **keywords)

    method.__name__ = name
    return method


class Rearrangements:
    """The same elements in another order or shape."""

    __slots__ = ()

    ref: Ref

    @property
    def T(self) -> Tensor:  # noqa: N802  the Array API's name
        """The tensor with its axes reversed. A view."""
        return self.permute(tuple(reversed(range(len(self.ref.shape)))))

    @property
    def mT(self) -> Tensor:  # noqa: N802  the Array API's name
        """The tensor with its last two axes exchanged. A view."""
        ndim = len(self.ref.shape)
        if ndim < 2:
            raise ValueError(f"[mT] a tensor of shape {self.ref.shape} is no matrix; expected at least 2 axes")
        return self.permute((*range(ndim - 2), ndim - 1, ndim - 2))

    @property
    def H(self) -> Tensor:  # noqa: N802  PyTorch's name
        """The transpose of a matrix; numbers are real, so that there is nothing to conjugate. A view."""
        if len(self.ref.shape) not in (0, 2):
            raise ValueError(f"[H] a tensor of shape {self.ref.shape} is no matrix; use .mT for stacks of matrices")
        return self.T

    @property
    def mH(self) -> Tensor:  # noqa: N802  PyTorch's name
        """The tensor with its last two axes exchanged, as `mT`. A view."""
        return self.mT

    def reshape(self, *shape: Any) -> Tensor:
        """Return the elements, in row-major order, in another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`."""
        result: Tensor = _reshape(self, _sequence(shape))
        return result

    view = reshape

    def permute(self, *axes: Any, dims: Any = None) -> Tensor:
        """Return a view with axis `axes[i]` at position i: `x.permute(1, 0)` or `x.permute((1, 0))`, also as `dims`."""
        result: Tensor = _permute(self, _sequence(axes if dims is None else (tuple(dims),)))
        return result

    new_empty, new_full, new_ones = _later("new_empty"), _later("new_full"), _later("new_ones")
    new_tensor, new_zeros = _later("new_tensor"), _later("new_zeros")
