"""Bracket notation on tensors: views for integers and slices, copies for index tensors and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.indexing import basic_index

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_embedding, _reshape, _permute, _where, _less, _broadcast_to = (
    FUNCTIONS[n] for n in ("embedding", "reshape", "permute", "where", "less", "broadcast_to")
)


def _is_basic(item: Any) -> bool:
    return item is None or item is Ellipsis or isinstance(item, (slice, int, np.integer)) and not isinstance(item, (bool, np.bool_))


def select(x: Tensor, index: Any) -> Tensor:
    """`x[index]` under NumPy's rules. Raises IndexError."""
    items = index if isinstance(index, tuple) else (index,)
    if all(_is_basic(item) for item in items):
        result: Tensor = basic_index(x, items)
        return result
    x, positions, start = _advanced(x, items)
    rows = _reshape(x, (-1, *x.shape[start:])) if start else x
    out = _embedding(_reshape(rows, (rows.shape[0], -1)) if rows.size else _reshape(rows, (rows.shape[0], 0)), positions)
    return _reshape(out, (*positions.shape, *x.shape[start:]))  # type: ignore[no-any-return]


def _advanced(x: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, Tensor, int]:
    """Move the axes that index tensors name to the front: the tensor, flat positions in those axes, and their number."""
    from polyhal.tensor import Tensor, as_tensor

    expanded: list[Any] = []
    for item in items:
        if _is_basic(item):
            expanded.append(item)
            continue
        array = item if isinstance(item, Tensor) else as_tensor(item, x.device)
        if array.dtype is dtypes.bool_:
            # The number of hits decides a shape, so the mask has to come to the host.
            expanded += [as_tensor(hits.astype(np.int64), x.device) for hits in np.nonzero(array.numpy())]
        elif array.dtype.is_integral:
            expanded.append(array)
        else:
            raise IndexError(f"[getitem] an index tensor is {array.dtype.name}; expected integers or bool")
    plain = [slice(None) if isinstance(item, Tensor) else item for item in expanded]
    if Ellipsis not in plain:
        plain.append(Ellipsis)
    x = basic_index(x, tuple(plain))
    axes: list[int] = []
    tensors: list[Tensor] = []
    axis = 0
    for item in expanded:
        if isinstance(item, Tensor):
            axes.append(axis)
            tensors.append(item)
            axis += 1
        elif item is Ellipsis:
            axis += x.ndim - sum(1 for i in expanded if i is None or isinstance(i, (slice, Tensor)))
        elif item is None or isinstance(item, slice):
            axis += 1
    x = _permute(x, (*axes, *(i for i in range(x.ndim) if i not in axes)))
    flat: Any = None
    for length, tensor in zip(x.shape, tensors, strict=False):
        wrapped = _where(_less(tensor, 0), tensor + length, tensor)
        flat = wrapped if flat is None else flat * length + wrapped
    return x, flat, len(axes)


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
