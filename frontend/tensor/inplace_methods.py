"""Methods of tensors that write in place and take other arguments than an op does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import is_dense
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.ops.indexing.hits import values_by_rank
from polyhal.hal.ops.indexing.row_masks import mask_of_rows
from polyhal.tensor.element_updates import element_update
from polyhal.tensor.indexing import cast_to
from polyhal.tensor.inplace import apply_in_place, function_in_place, overwrite, update_in_place
from polyhal.tensor.inplace_ops import InPlaceOps

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.tensor import Tensor

_multiply = FUNCTIONS["multiply"]


class InPlaceMethods(InPlaceOps):
    """Writes over the elements of a tensor. All raise AutogradError for leaves that require gradients."""

    __slots__ = ()

    device: Device

    def copy_(self, src: Tensor, non_blocking: bool = False) -> Self:
        """Overwrite the tensor with `src`, broadcast and cast. Gradients flow to `src`.

        `non_blocking` changes nothing: a copy on one device never waits, and one from another device waits for its values.
        """
        overwrite(self, _operand(src, self))
        return self

    def fill_(self, value: Any) -> Self:
        """Overwrite every element by a number, or by a tensor without axes. Raises ShapeError for other tensors."""
        if not isinstance(value, (bool, int, float, complex)):
            value = _operand(value, self)
            if value.ndim:
                raise ShapeError(message("fill_", f"the value has shape {value.shape}", expected="no axes"))
        overwrite(self, value, "fill_")
        return self

    def fill_diagonal_(self: Any, fill_value: float, wrap: bool = False) -> Any:
        """Overwrite the elements whose indices are all equal by a number.

        With `wrap`, the diagonal of a tall matrix begins again after each block of rows. Raises ShapeError for a tensor with
        fewer than two axes, and for one of more than two axes of different lengths.
        """
        shape = self.shape
        if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
            expected = "a matrix, or more axes of equal length"
            raise ShapeError(message("fill_diagonal_", f"the tensor has shape {shape}", expected=expected))
        mask = np.zeros(shape, np.bool_)
        if len(shape) == 2:
            np.fill_diagonal(mask, True, wrap=wrap)
        else:
            mask[(np.arange(shape[0]),) * len(shape)] = True
        return self.masked_fill_(_operand(mask, self), fill_value)

    def masked_fill_(self: Any, mask: Tensor, value: Tensor | float) -> Any:
        """Overwrite the elements where `mask`, which is broadcast, is true by `value`, a number or a tensor without axes."""
        value = cast_to(value, self, "masked_fill_")
        return apply_in_place("masked_fill_", OPS["where"], (_operand(mask, self), value, self), (), 2)

    def masked_scatter_(self: Any, mask: Tensor, source: Tensor) -> Any:
        """Overwrite the elements where `mask`, which is broadcast, is true by the first ones of `source`, in its order."""
        mask = _operand(mask, self)
        found = None if self.dtype.is_complex else values_by_rank("masked_scatter", self, mask, source)
        if found is None:
            return function_in_place("masked_scatter_", FUNCTIONS["masked_scatter"], self, mask, source)
        return apply_in_place("masked_scatter_", OPS["where"], (mask, found, self), (), 2)

    def index_put_(self: Any, indices: Any, values: Tensor, accumulate: bool = False) -> Any:
        """Assign `self[indices] = values`, or add the values if they accumulate. Compare `torch.Tensor.index_put_`."""
        items = tuple(slice(None) if i is None else i for i in indices)
        mask = None if self.dtype.is_complex else mask_of_rows(self, items, values)
        if mask is not None:
            values = cast_to(values, self, "index_put_")
            replacement = self + values if accumulate else values
            return apply_in_place("index_put_", OPS["where"], (mask, replacement, self), (), 2)
        if is_dense(self.shape, self.strides) and not self.dtype.is_complex:
            update = element_update("index_put_", self, items, values, "sum" if accumulate else "replace")
            if update_in_place("index_put_", self, update):
                return self
        return function_in_place("index_put_", FUNCTIONS["index_put"], self, indices, values, accumulate)

    def detach_(self: Any) -> Any:
        """Take the tensor itself off the tape. Raises AutogradError for views."""
        from polyhal.tape.reshape import detach_in_place

        return detach_in_place(self)

    def zero_(self) -> Self:
        """Overwrite every element by 0."""
        overwrite(self, 0, "zero_")
        return self

    def add_(self, other: Tensor | complex | float, *, alpha: float = 1) -> Self:
        """Add `alpha * other` in place, cast to the tensor's dtype."""
        return self.__iadd__(other if alpha == 1 else _scaled(other, alpha, self))

    def sub_(self, other: Tensor | float, *, alpha: float = 1) -> Self:
        """Subtract `alpha * other` in place, cast to the tensor's dtype."""
        return self.__isub__(other if alpha == 1 else _scaled(other, alpha, self))


def _operand(value: Any, target: Any) -> Any:
    from polyhal.tensor import as_tensor

    return as_tensor(value, device=target.device)


def _scaled(x: Any, factor: Any, target: Any) -> Any:
    return x * factor if isinstance(x, (bool, int, float, complex)) else _multiply(_operand(x, target), factor)
