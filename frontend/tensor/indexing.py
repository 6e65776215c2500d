"""Bracket notation on tensors, with NumPy's rules: views for integers and slices, copies for index tensors and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch.bounds import IndexRangeError
from polyhal.hal.core.dispatch.number_range import require_fit
from polyhal.hal.layout import is_dense
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.ops.indexing.brackets import basic_index
from polyhal.hal.ops.indexing.row_masks import mask_of_rows
from polyhal.hal.ops.indexing.row_updates import wrap_index
from polyhal.hal.ops.returns import own
from polyhal.index_items import axes_of, check_numbers, indexed_axes, is_basic, is_mask, truths_as_masks
from polyhal.tensor.inplace import apply_in_place, function_in_place, overwrite, update_in_place

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_arange, _broadcast_to, _cast, _less, _replace_rows, _where = (
    FUNCTIONS[n] for n in ("arange", "broadcast_to", "cast", "less", "replace_rows", "where")
)
_contiguous, _embedding, _permute, _reshape = (FUNCTIONS[n] for n in ("contiguous", "embedding", "permute", "reshape"))


def select(x: Tensor, index: Any) -> Tensor:
    """`x[index]`. Raises IndexError."""
    items = index if isinstance(index, tuple) else (index,)
    result: Tensor
    if all(map(is_basic, items)):
        result = basic_index(x, items)
        return _reshape(x, x.shape) if result is x else result
    try:
        return _selected(*indexed_axes(x, items))
    except IndexRangeError as error:
        raise error.named("getitem") from None


def _selected(front: Tensor, indices: list[Any], place: int) -> Tensor:
    """Return the elements at positions along the first axes; their axes begin at the axis `place` of the result."""
    result: Tensor
    count = len(indices)
    positions = _flat_positions(front, indices)
    rest = front.shape[count:]
    rows = _reshape(front, (math.prod(front.shape[:count]), *rest))
    flat = _reshape(rows, (rows.shape[0], -1 if rows.size else 0))
    result = _reshape(_embedding(flat, positions), (*positions.shape, *rest))
    if place:
        k = positions.ndim
        result = _contiguous(_permute(result, (*range(k, k + place), *range(k), *range(k + place, result.ndim))))
    return own(result)  # type: ignore[no-any-return]


def assign(x: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`, in place and on the tape. Raises IndexError, and AutogradError for leaves that require gradients."""
    from polyhal.tensor import as_tensor

    items = index if isinstance(index, tuple) else (index,)
    if hasattr(value, "ref"):
        value = value if value.device is x.device else value.to(x.device)
    elif not isinstance(value, (bool, int, float, complex)):
        value = as_tensor(value, device=x.device)
    if all(map(is_basic, items)):
        overwrite(basic_index(x, items), value, "setitem")
        return
    try:
        _assign_elements(*truths_as_masks(x, items), value)
    except IndexRangeError as error:
        raise error.named("setitem") from None


def _assign_elements(x: Tensor, items: tuple[Any, ...], value: Tensor | float) -> None:
    """Assign to the elements that index tensors and masks name, in the memory of `x` where it is dense."""
    from polyhal.tensor.element_updates import element_update

    mask = _mask_of_rows(x, items, value)
    if mask is not None and not x.dtype.is_complex:
        apply_in_place("setitem", OPS["where"], (mask, cast_to(value, x), x), (), 2)
        return
    in_place = is_dense(x.shape, x.strides) and not x.dtype.is_complex
    if in_place and update_in_place("setitem", x, element_update("setitem", x, items, value, "replace")):
        return
    function_in_place("setitem", _with_elements, x, items, value)


def _mask_of_rows(x: Tensor, items: tuple[Any, ...], value: Tensor | float) -> Any:
    """Return a mask that is the only item, with axes of length 1 for the rest of `x`; None if the values depend on its hits."""
    from polyhal.tensor import as_tensor

    if not is_mask(items[0]) or x.ndim < axes_of(items[0]):
        return None
    mask = as_tensor(items[0], device=x.device)
    if len(items) == 1 and mask.shape != x.shape[: mask.ndim]:
        raise IndexError(f"[setitem] a mask of shape {mask.shape} does not fit axes {x.shape[: mask.ndim]}")
    return mask_of_rows(x, (mask, *items[1:]), value)


def _with_elements(x: Tensor, items: tuple[Tensor, ...], value: Any) -> Tensor:
    """Return a copy of `x` in which the elements that index tensors and masks name are replaced."""
    from polyhal.tensor import as_tensor

    mask = _mask_of_rows(x, items, value)
    if mask is not None:
        where_true: Tensor = _where(mask, cast_to(value, x), x)
        return where_true
    # Positions count from 1, so that an index out of range, which reads 0 where it is not refused, names no element.
    numbers = _reshape(_arange(1, x.size + 1, 1, dtypes.int64, device=x.device), x.shape)
    targets = select(numbers, items)
    if not hasattr(value, "ref"):
        value = as_tensor(value, device=x.device)
    values = _reshape(_broadcast_to(cast_to(value, x), targets.shape), (-1, 1))
    if not targets.size:
        return x.clone()
    numbers = _reshape(targets, (-1,)) - 1
    distinct = all(is_basic(i) or is_mask(i) for i in items)
    result: Tensor = _reshape(_replace_rows(_reshape(x, (-1, 1)), numbers, values, distinct=distinct), x.shape)
    return result


def cast_to(value: Any, x: Tensor, method: str = "setitem") -> Any:
    """Cast a tensor or a number to the dtype of `x`. Raises NumberRangeError for a number that an integer dtype lacks."""
    if hasattr(value, "ref"):
        return value if value.dtype is x.dtype else _cast(value, x.dtype)
    if x.dtype.kind in ("float", "complex"):
        return value
    require_fit(method, value, x.dtype)
    return np.asarray(value).astype(x.dtype.numpy).item()


def _flat_positions(x: Tensor, indices: Sequence[Any]) -> Tensor:
    """Return one number per element for positions in the first axes of `x`. Raises IndexError for positions outside."""
    from polyhal.tensor import Tensor, as_tensor

    flat: Tensor | None = None
    for length, item in zip(x.shape, indices, strict=False):
        if not isinstance(item, Tensor):
            check_numbers("getitem", item, length)
        index = item if isinstance(item, Tensor) else as_tensor(item, device=x.device)
        # Each of several numbers must be in range: their combination may refer to another element.
        several = len(indices) > 1
        positive: Tensor = wrap_index(index, length) if several else _where(_less(index, 0), index + length, index)
        flat = positive if flat is None else flat * length + positive
    assert flat is not None
    return flat
