"""Bracket notation on tensors: views for integers and slices, copies for index tensors and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.indexing.brackets import basic_index

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_embedding, _reshape, _permute, _where, _less, _broadcast_to = (
    FUNCTIONS[n] for n in ("embedding", "reshape", "permute", "where", "less", "broadcast_to")
)


def _is_basic(item: Any) -> bool:
    return (
        item is None
        or item is Ellipsis
        or (isinstance(item, (slice, int, np.integer)) and not isinstance(item, (bool, np.bool_)))
    )


def select(x: Tensor, index: Any) -> Tensor:
    """`x[index]` under NumPy's rules. Raises IndexError."""
    items = index if isinstance(index, tuple) else (index,)
    if all(_is_basic(item) for item in items):
        result: Tensor = basic_index(x, items)
        return result
    x, positions, count, place = _advanced(x, items)
    rows = _reshape(x, (-1, *x.shape[count:])) if count else x
    out = _embedding(
        _reshape(rows, (rows.shape[0], -1)) if rows.size else _reshape(rows, (rows.shape[0], 0)), positions
    )
    out = _reshape(out, (*positions.shape, *x.shape[count:]))
    if not place:
        return out  # type: ignore[no-any-return]
    k = positions.ndim
    return _permute(out, (*range(k, k + place), *range(k), *range(k + place, out.ndim)))  # type: ignore[no-any-return]


def _advanced(x: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, Tensor, int, int]:
    """Move the axes that index tensors name to the front.

    Returns the tensor, flat positions in those axes, their number, and where the axes of the positions belong in the result:
    in the place of the indexed axes if these are neighbours, else in front, as in NumPy.
    """
    from polyhal.tensor import Tensor, as_tensor

    expanded = _expanded(x, items)
    plain = [item if _is_basic(item) else slice(None) for item in expanded]
    if Ellipsis not in plain:
        plain.append(Ellipsis)
    x = basic_index(x, tuple(plain))
    axes: list[int] = []
    found: list[Any] = []
    place = None
    axis = 0
    for item in expanded:
        if place is None and _is_advanced(item):
            place = axis
        if item is Ellipsis:
            axis += x.ndim - sum(1 for i in expanded if i is not Ellipsis and not isinstance(i, (int, np.integer)))
        elif not isinstance(item, (int, np.integer)):
            if not _is_basic(item):
                axes.append(axis)
                found.append(item)
            axis += 1
    marks = [_is_advanced(item) for item in expanded]
    first, last = marks.index(True), len(marks) - marks[::-1].index(True)
    x = _permute(x, (*axes, *(i for i in range(x.ndim) if i not in axes)))
    flat: Any = None
    for length, item in zip(x.shape, found, strict=False):
        if not isinstance(item, Tensor) and item.size and not (-length <= item.min() and item.max() < length):
            raise IndexError(
                f"[getitem] an index lies in {item.min()}..{item.max()}; the axis it indexes has length {length}"
            )
        tensor = item if isinstance(item, Tensor) else as_tensor(item, x.device)
        wrapped = _where(_less(tensor, 0), tensor + length, tensor)
        flat = wrapped if flat is None else flat * length + wrapped
    return x, flat, len(axes), (place or 0) if all(marks[first:last]) else 0


def _is_advanced(item: Any) -> bool:
    """True for what NumPy counts as an advanced index once there is an index tensor: that, and integers."""
    return isinstance(item, (int, np.integer)) or not _is_basic(item)


def _expanded(x: Tensor, items: tuple[Any, ...]) -> list[Any]:
    """The items with masks replaced by the positions of their hits. Raises IndexError for masks that do not fit, and floats."""
    from polyhal.tensor import Tensor

    taken = sum(1 if _is_basic(i) else _axes_of(i) for i in items if i is not None and i is not Ellipsis)
    expanded: list[Any] = []
    axis = 0
    for item in items:
        if _is_basic(item):
            expanded.append(item)
            axis += x.ndim - taken if item is Ellipsis else 0 if item is None else 1
            continue
        array = item if isinstance(item, Tensor) else np.asarray(item)
        if not isinstance(array, Tensor) and not array.size and array.dtype.kind == "f":
            array = array.astype(np.int64)  # an empty list
        kind = dtypes.as_dtype(array.dtype)
        if kind is dtypes.bool_:
            if array.shape != x.shape[axis : axis + array.ndim]:
                raise IndexError(
                    f"[getitem] a mask of shape {array.shape} does not fit axes {x.shape[axis : axis + array.ndim]}"
                )
            # The number of hits decides a shape, so the mask has to come to the host.
            expanded += [hits.astype(np.int64) for hits in np.nonzero(np.asarray(array))]
        elif kind.is_integral:
            expanded.append(array)
        else:
            raise IndexError(f"[getitem] an index tensor is {kind.name}; expected integers or bool")
        axis += _axes_of(item)
    return expanded


def _axes_of(item: Any) -> int:
    """How many axes an index tensor takes: as many as a mask has, else one."""
    array = item if hasattr(item, "ref") else np.asarray(item)
    return int(array.ndim) if array.dtype in (dtypes.bool_, np.bool_) else 1


def assign(x: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`, in place. Raises IndexError, and AutogradError on tracked tensors."""
    from polyhal.tensor import as_tensor

    items = index if isinstance(index, tuple) else (index,)
    x.check_in_place("setitem")
    if all(_is_basic(item) for item in items):
        target = basic_index(x.detach(), items)
        if isinstance(value, (bool, int, float)):
            target.fill_(value)
        else:
            target.copy_(value)
        return
    # Rare and not worth a kernel: take the tensor to the host, assign there and bring it back.
    array = x.numpy()
    array[tuple(np.asarray(i) if not _is_basic(i) else i for i in items)] = np.asarray(value)
    x.copy_(as_tensor(array, x.device))
