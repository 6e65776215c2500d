"""Items of an index, between brackets, with NumPy's rules: their kinds, and index tensors as positions along leading axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.indexing.brackets import basic_index
from polyhal.hal.ops.indexing.hits import coordinates, hit_positions
from polyhal.hal.ops.tensor_like import Array

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_permute, _reshape = FUNCTIONS["permute"], FUNCTIONS["reshape"]


class IndexedAxes(NamedTuple):
    """A tensor whose indexed axes come first."""

    x: Tensor
    """A view of the indexed tensor, from which integers and slices have selected."""
    indices: list[Any]
    """An index tensor or array of integers for each of the first axes; they broadcast."""
    place: int
    """The position of the axes of the indices in the result."""


def indexed_axes(x: Tensor, items: tuple[Any, ...]) -> IndexedAxes:
    """Move the axes with index tensors and masks to the front. Raises IndexError for items that do not fit."""
    x, items = truths_as_masks(x, items)
    items = tuple(_without_masks(x, items))
    basic = [item if is_basic(item) else slice(None) for item in items]
    part: Tensor = basic_index(x, tuple(basic if Ellipsis in basic else [*basic, Ellipsis]))
    placed = _placed_items(items, part.ndim)
    axes = [axis for item, axis in placed if not is_basic(item)]
    if not axes:
        raise IndexError("[getitem] no index tensors")
    front: Tensor = _permute(part, (*axes, *(i for i in range(part.ndim) if i not in axes)))
    return IndexedAxes(front, [item for item in items if not is_basic(item)], _result_axis(placed))


def truths_as_masks(x: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
    """Replace bools, and bool tensors without axes, by masks over new axes of length 1, which are added to `x`."""
    if not any(map(_is_truth, items)):
        return x, items
    view: list[Any] = []
    for item in items:
        if _is_truth(item):
            view.append(None)
        elif item is not None:
            view += [item] if item is Ellipsis else [slice(None)] * (1 if is_basic(item) else axes_of(item))
    return basic_index(x, tuple(view)), tuple(_lifted(i) if _is_truth(i) else i for i in items)


def _lifted(truth: Tensor | Array | bool) -> Any:
    return _reshape(truth, (1,)) if hasattr(truth, "ref") else np.asarray(truth).reshape(1)


# --- kinds of items -------------------------------------------------------------------------------------------------


def is_basic(item: Any) -> bool:
    """Return whether an item selects a view: an integer, a slice, None or an ellipsis."""
    return item is None or item is Ellipsis or isinstance(item, slice) or _is_integer(item)


def is_mask(item: Any) -> bool:
    """Return whether an item is a tensor or an array of bool."""
    array = item if hasattr(item, "ref") else np.asarray(item)
    return not is_basic(item) and array.dtype in (dtypes.bool_, np.bool_)


def axes_of(item: Tensor) -> int:
    """Return the number of axes that an index tensor indexes: all axes of a mask, else one."""
    array = item if hasattr(item, "ref") else np.asarray(item)
    return int(array.ndim) if array.dtype in (dtypes.bool_, np.bool_) else 1


def check_numbers(method: str, item: np.ndarray, length: int) -> None:
    """Raise IndexError for an index of the host with numbers outside of an axis."""
    if item.size and not (-length <= item.min() and item.max() < length):
        problem = f"an index has numbers from {item.min()} to {item.max()}"
        raise IndexError(f"[{method}] {problem}; the axis it indexes has length {length}")


def _is_truth(item: Any) -> bool:
    """Return whether an item is a bool, or a bool tensor without axes."""
    if isinstance(item, (bool, np.bool_)):
        return True
    return hasattr(item, "dtype") and not item.shape and item.dtype in (dtypes.bool_, np.bool_)


def _is_integer(item: Tensor | int) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))


def _is_advanced(item: Any) -> bool:
    """Return whether NumPy counts an item as an advanced index if there is an index tensor: integers are then, too."""
    return _is_integer(item) or not is_basic(item)


# --- places of items ------------------------------------------------------------------------------------------------


def _placed_items(items: Sequence[Any], ndim: int) -> list[tuple[Any, int]]:
    """Return each item with the axis that it begins at, in a tensor of `ndim` axes from which integers have selected."""
    explicit = sum(1 for i in items if i is not Ellipsis and not _is_integer(i))
    placed: list[tuple[Any, int]] = []
    axis = 0
    for item in items:
        placed.append((item, axis))
        axis += ndim - explicit if item is Ellipsis else 0 if _is_integer(item) else 1
    return placed


def _result_axis(placed: Sequence[tuple[Any, int]]) -> int:
    """Return the position of the indexed axes in the result: where they were if they are adjacent, else the front."""
    advanced = [i for i, (item, _) in enumerate(placed) if _is_advanced(item)]
    adjacent = advanced[-1] - advanced[0] == len(advanced) - 1
    return placed[advanced[0]][1] if adjacent else 0


# --- masks ----------------------------------------------------------------------------------------------------------


def _without_masks(x: Tensor, items: tuple[Any, ...]) -> list[Any]:
    """Replace masks by the positions of their hits. Raises IndexError for masks that do not fit, and for floats."""
    indexed = sum(1 if is_basic(i) else axes_of(i) for i in items if i is not None and i is not Ellipsis)
    expanded: list[Any] = []
    axis = 0
    for item in items:
        if is_basic(item):
            expanded.append(item)
            axis += x.ndim - indexed if item is Ellipsis else 0 if item is None else 1
            continue
        array = item if hasattr(item, "ref") else np.asarray(item)
        if not hasattr(array, "ref") and not array.size and array.dtype.kind == "f":
            array = array.astype(np.int64)  # an empty list
        kind = dtypes.as_dtype(array.dtype)
        if kind is dtypes.bool_:
            expanded += _hits(array, x.shape[axis : axis + array.ndim])
        elif kind.is_integral:
            expanded.append(array)
        else:
            raise IndexError(f"[getitem] an index tensor is {kind.name}; expected integers or bool")
        axis += axes_of(item)
    return expanded


def _hits(mask: Tensor | Array, shape: tuple[int, ...]) -> Sequence[Any]:
    """Return the places at which a mask is true, one vector per axis. Raises CaptureError for a tensor in a captured step."""
    if mask.shape != shape:
        raise IndexError(f"[getitem] a mask of shape {mask.shape} does not fit axes {shape}")
    if hasattr(mask, "ref"):
        return coordinates(hit_positions("getitem", mask), shape)
    return [hits.astype(np.int64) for hits in np.nonzero(mask)]
