"""Bracket notation on tensors, with NumPy's rules: views for integers and slices, copies for index tensors and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dispatch.number_range import require_fit
from polyhal.hal.layout import is_dense
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.hal.ops.indexing.brackets import basic_index
from polyhal.hal.ops.indexing.hits import coordinates, hit_positions
from polyhal.hal.ops.indexing.row_masks import mask_of_rows
from polyhal.hal.ops.indexing.row_updates import wrap_index
from polyhal.hal.ops.returns import own
from polyhal.inplace import apply_in_place, function_in_place, overwrite, update_in_place

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
    if _is_one_truth(items):  # as a mask over a new axis of length 1
        lifted = _reshape(x, (1, *x.shape))
        if isinstance(items[0], (bool, np.bool_)):
            return FUNCTIONS["copy"](lifted if items[0] else lifted[:0])  # type: ignore[no-any-return]
        return select(lifted, _reshape(items[0], (1,)))
    gather = _gather(x, items)
    x, positions = gather.x, gather.positions
    rest = x.shape[gather.axes :]
    rows = _reshape(x, (math.prod(x.shape[: gather.axes]), *rest)) if gather.axes else x
    flat = _reshape(rows, (rows.shape[0], -1 if rows.size else 0))
    result = _reshape(_embedding(flat, positions), (*positions.shape, *rest))
    if gather.place:
        k, place = positions.ndim, gather.place
        result = _contiguous(_permute(result, (*range(k, k + place), *range(k), *range(k + place, result.ndim))))
    return own(result)  # type: ignore[no-any-return]


def _is_one_truth(items: tuple[Any, ...]) -> bool:
    """Return whether an index is a single bool, or a bool tensor without axes."""
    (item,) = items if len(items) == 1 else (None,)
    if isinstance(item, (bool, np.bool_)):
        return True
    return hasattr(item, "ref") and not item.shape and item.dtype is dtypes.bool_  # type: ignore[union-attr]


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
    elif _is_one_truth(items):
        function_in_place("setitem", lambda x, value: FUNCTIONS["where"](items[0], value, x), x, value)
    else:
        _assign_elements(x, items, value)


def _assign_elements(x: Tensor, items: tuple[Any, ...], value: Any) -> None:
    """Assign to the elements that index tensors and masks name, in the memory of `x` where it is dense."""
    from polyhal.element_updates import element_update

    mask = _mask_of_rows(x, items, value)
    if mask is not None and not x.dtype.is_complex:
        apply_in_place("setitem", OPS["where"], (mask, cast_to(value, x), x), (), 2)
        return
    in_place = is_dense(x.shape, x.strides) and not x.dtype.is_complex
    if in_place and update_in_place("setitem", x, element_update("setitem", x, items, value, "replace")):
        return
    function_in_place("setitem", _with_elements, x, items, value)


def _mask_of_rows(x: Tensor, items: tuple[Any, ...], value: Any) -> Any:
    """Return a mask that is the only item, with axes of length 1 for the rest of `x`; None if the values depend on its hits."""
    from polyhal.tensor import as_tensor

    if not is_mask(items[0]) or x.ndim < _axes_of(items[0]):
        return None
    mask = as_tensor(items[0], device=x.device)
    if len(items) == 1 and mask.shape != x.shape[: mask.ndim]:
        raise IndexError(f"[setitem] a mask of shape {mask.shape} does not fit axes {x.shape[: mask.ndim]}")
    return mask_of_rows(x, (mask, *items[1:]), value)


def _with_elements(x: Tensor, items: tuple[Any, ...], value: Any) -> Tensor:
    """A copy of `x` in which the elements that index tensors and masks name are replaced."""
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


def is_mask(item: Any) -> bool:
    """Return whether an item is a tensor or an array of bool."""
    array = item if hasattr(item, "ref") else np.asarray(item)
    return not is_basic(item) and array.dtype in (dtypes.bool_, np.bool_)


# --- kinds of items -------------------------------------------------------------------------------------------------


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))


def is_basic(item: Any) -> bool:
    """Return whether an item selects a view: an integer, a slice, None or an ellipsis."""
    return item is None or item is Ellipsis or isinstance(item, slice) or _is_integer(item)


def _is_advanced(item: Any) -> bool:
    """Whether NumPy counts an item as an advanced index if there is an index tensor: integers are then, too."""
    return _is_integer(item) or not is_basic(item)


def _axes_of(item: Any) -> int:
    """How many axes an index tensor indexes: all those of a mask, else one."""
    array = item if hasattr(item, "ref") else np.asarray(item)
    return int(array.ndim) if array.dtype in (dtypes.bool_, np.bool_) else 1


# --- index tensors --------------------------------------------------------------------------------------------------


class _Gather(NamedTuple):
    """Advanced indexing as a lookup of rows."""

    x: Tensor
    """The indexed axes come first."""
    positions: Tensor
    """Row numbers, counted through all indexed axes."""
    axes: int
    """How many axes are indexed."""
    place: int
    """Where the axes of `positions` belong in the result."""


def _gather(x: Tensor, items: tuple[Any, ...]) -> _Gather:
    items = tuple(without_masks(x, items))
    basic = [item if is_basic(item) else slice(None) for item in items]
    x = basic_index(x, tuple(basic if Ellipsis in basic else [*basic, Ellipsis]))
    placed = placed_items(items, x.ndim)
    axes = [axis for item, axis in placed if not is_basic(item)]
    x = _permute(x, (*axes, *(i for i in range(x.ndim) if i not in axes)))
    positions = _flat_positions(x, [item for item in items if not is_basic(item)])
    return _Gather(x, positions, len(axes), result_axis(placed))


def placed_items(items: Sequence[Any], ndim: int) -> list[tuple[Any, int]]:
    """Each item with the axis that it begins at, in a tensor of `ndim` axes from which integers have selected."""
    explicit = sum(1 for i in items if i is not Ellipsis and not _is_integer(i))
    placed: list[tuple[Any, int]] = []
    axis = 0
    for item in items:
        placed.append((item, axis))
        axis += ndim - explicit if item is Ellipsis else 0 if _is_integer(item) else 1
    return placed


def result_axis(placed: Sequence[tuple[Any, int]]) -> int:
    """Where indexed axes belong in the result: where they were if they are adjacent, else in front."""
    advanced = [i for i, (item, _) in enumerate(placed) if _is_advanced(item)]
    adjacent = advanced[-1] - advanced[0] == len(advanced) - 1
    return placed[advanced[0]][1] if adjacent else 0


def _flat_positions(x: Tensor, indices: Sequence[Any]) -> Tensor:
    """One number per element for positions in the first axes of `x`. Raises IndexError for positions outside."""
    from polyhal.tensor import Tensor, as_tensor

    flat: Tensor | None = None
    for length, item in zip(x.shape, indices, strict=False):
        if not isinstance(item, Tensor):
            check_numbers("getitem", item, length)
        index = item if isinstance(item, Tensor) else as_tensor(item, device=x.device)
        # Of several numbers each has to be in range: together they may name another element.
        several = len(indices) > 1
        positive: Tensor = wrap_index(index, length) if several else _where(_less(index, 0), index + length, index)
        flat = positive if flat is None else flat * length + positive
    if flat is None:
        raise IndexError("[getitem] no index tensors")
    return flat


def check_numbers(method: str, item: np.ndarray, length: int) -> None:
    """Raise IndexError for an index of the host with numbers outside of an axis."""
    if item.size and not (-length <= item.min() and item.max() < length):
        problem = f"an index has numbers from {item.min()} to {item.max()}"
        raise IndexError(f"[{method}] {problem}; the axis it indexes has length {length}")


def without_masks(x: Tensor, items: tuple[Any, ...]) -> list[Any]:
    """The items with masks replaced by the positions of their hits. Raises IndexError for masks that do not fit, and floats."""
    from polyhal.tensor import Tensor

    indexed = sum(1 if is_basic(i) else _axes_of(i) for i in items if i is not None and i is not Ellipsis)
    expanded: list[Any] = []
    axis = 0
    for item in items:
        if is_basic(item):
            expanded.append(item)
            axis += x.ndim - indexed if item is Ellipsis else 0 if item is None else 1
            continue
        array = item if isinstance(item, Tensor) else np.asarray(item)
        if not isinstance(array, Tensor) and not array.size and array.dtype.kind == "f":
            array = array.astype(np.int64)  # an empty list
        kind = dtypes.as_dtype(array.dtype)
        if kind is dtypes.bool_:
            expanded += _hits(array, x.shape[axis : axis + array.ndim])
        elif kind.is_integral:
            expanded.append(array)
        else:
            raise IndexError(f"[getitem] an index tensor is {kind.name}; expected integers or bool")
        axis += _axes_of(item)
    return expanded


def _hits(mask: Any, shape: tuple[int, ...]) -> Sequence[Any]:
    """Where a mask is true, one vector per axis. Raises CaptureError for a tensor in a captured step."""
    if mask.shape != shape:
        raise IndexError(f"[getitem] a mask of shape {mask.shape} does not fit axes {shape}")
    if hasattr(mask, "ref"):
        return coordinates(hit_positions("getitem", mask), shape)
    return [hits.astype(np.int64) for hits in np.nonzero(mask)]
