"""Methods of tensors that take lengths or axes as separate arguments, transposes as properties, and PyTorch's `new_*`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyhal.hal.layout import Ref
from polyhal.hal.ops import FUNCTIONS, PUBLIC
from polyhal.hal.ops.complex_numbers.functions import conj
from polyhal.hal.ops.layout.repeats import sliding_windows
from polyhal.hal.ops.returns import Returns, returns

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_broadcast_to, _permute, _reshape, _tile, _where = (
    FUNCTIONS[n] for n in ("broadcast_to", "permute", "reshape", "tile", "where")
)


def _sequence(items: tuple[Any, ...]) -> Any:
    """Return one sequence from separate arguments, or from a sequence as the only one."""
    return items[0] if len(items) == 1 and isinstance(items[0], (tuple, list)) else items


def _later(name: str) -> Callable[..., Any]:
    """Return a method that is a function of polyhal.creation, which imports the module of tensors."""

    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        from polyhal import creation

        return getattr(creation, name)(self, *args, **keywords)

    method.__name__ = name
    return method


class Rearrangements:
    """Functions that reorder or reshape elements."""

    __slots__ = ()

    ref: Ref

    def where(self: Any, condition: Tensor, other: Tensor) -> Any:
        """Return elements of this tensor where `condition` is true, else of `other`."""
        return _where(condition, self, other)

    @property
    @returns(Returns.VIEW)
    def T(self) -> Tensor:  # noqa: N802  the Array API's name
        """The tensor with its axes reversed."""
        return self.permute(tuple(reversed(range(len(self.ref.shape)))))

    @property
    @returns(Returns.VIEW)
    def mT(self) -> Tensor:  # noqa: N802  the Array API's name
        """The tensor with its last two axes exchanged."""
        ndim = len(self.ref.shape)
        if ndim < 2:
            raise ValueError(f"[mT] a tensor of shape {self.ref.shape} is no matrix; expected at least 2 axes")
        return self.permute((*range(ndim - 2), ndim - 1, ndim - 2))

    @property
    @returns(Returns.EITHER)
    def H(self) -> Tensor:  # noqa: N802  PyTorch's name
        """The conjugate transpose of a matrix."""
        if len(self.ref.shape) not in (0, 2):
            raise ValueError(f"[H] a tensor of shape {self.ref.shape} is no matrix; use .mT for stacks of matrices")
        result: Tensor = conj(self.T)
        return result

    @property
    @returns(Returns.EITHER)
    def mH(self) -> Tensor:  # noqa: N802  PyTorch's name
        """The conjugate with the last two axes exchanged."""
        result: Tensor = conj(self.mT)
        return result

    @property
    @returns(Returns.VIEW)
    def real(self) -> Tensor:
        """The real part of complex numbers; real numbers themselves."""
        itself: Any = self
        return itself  # type: ignore[no-any-return]

    @property
    @returns(Returns.VIEW)
    def imag(self) -> Tensor:
        """The imaginary part of complex numbers. Raises UnsupportedDTypeError for real ones."""
        result: Tensor = FUNCTIONS["imag"](self)
        return result

    @returns(Returns.EITHER)
    def reshape(self, *shape: Any, copy: bool | None = None) -> Tensor:
        """Return the elements, in row-major order, in another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`.

        With `copy` always in new memory; with `copy=False` always a view. Raises ValueError where only a copy is possible.
        """
        if copy is not None:
            reshaped: Tensor = PUBLIC["reshape"](self, _sequence(shape), copy=copy)
            return reshaped
        result: Tensor = _reshape(self, _sequence(shape))
        return result

    view = reshape

    @returns(Returns.VIEW)
    def permute(self, *axes: Any, dims: Any = None) -> Tensor:
        """Put axis `axes[i]` at position i: `x.permute(1, 0)` or `x.permute((1, 0))`, also as `dims`."""
        result: Tensor = _permute(self, _sequence(axes if dims is None else (tuple(dims),)))
        return result

    @returns(Returns.VIEW)
    def expand(self, *shape: Any, size: Any = None) -> Tensor:
        """Stretch the tensor to a shape, in which -1 keeps a length: `x.expand(3, -1)` or `x.expand((3, -1))`."""
        lengths = tuple(_sequence(shape if size is None else (tuple(size),)))
        missing = len(lengths) - len(self.ref.shape)
        if missing < 0 or -1 in lengths[:missing]:
            raise ValueError(f"[expand] shape {self.ref.shape} does not stretch to {lengths}")
        current = (*lengths[:missing], *self.ref.shape)
        result: Tensor = _broadcast_to(self, tuple(n if m == -1 else m for m, n in zip(lengths, current, strict=True)))
        return result

    @returns(Returns.COPY)
    def repeat(self, *counts: Any, repeats: Any = None) -> Tensor:
        """Return the tensor repeated along each axis: `x.repeat(2, 1)` or `x.repeat((2, 1))`; new axes come first."""
        times = tuple(_sequence(counts if repeats is None else (tuple(repeats),)))
        if len(times) < len(self.ref.shape):
            raise ValueError(f"[repeat] {len(times)} counts for {len(self.ref.shape)} axes; expected one for each")
        result: Tensor = _tile(self, times)
        return result

    @returns(Returns.VIEW)
    def unfold(self, dimension: int, size: int, step: int) -> Tensor:
        """Return windows of `size` elements along an axis with stride `step`, along a new last axis."""
        result: Tensor = sliding_windows(self, dimension, size, step)
        return result

    new_empty, new_full, new_ones = _later("new_empty"), _later("new_full"), _later("new_ones")
    new_tensor, new_zeros = _later("new_tensor"), _later("new_zeros")
