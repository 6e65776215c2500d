"""The printed form of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyhal.hal.errors import CaptureError, message

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_EDGE = 3
"""Elements at each end of an abridged axis."""
_LARGE = 1 << 16
"""Larger tensors are read at their edges only."""


def render(x: Tensor) -> str:
    """Format the elements as NumPy does, with dtype, device, and the node that created the tensor, if any.

    A tensor that is only being recorded has no elements yet: its shape takes their place.
    """
    try:
        array = _edges(x.detach()) if x.size > _LARGE else x.numpy()
    except CaptureError:
        return f"tensor(no elements while a step is recorded, shape={x.shape}, {_notes(x)})"
    if array.dtype.kind == "V":  # bfloat16 has no formatter of its own
        array = array.astype(np.float32)
    body = np.array2string(
        array,
        separator=", ",
        prefix="tensor(",
        precision=4,
        threshold=0 if x.size > 200 else 200,
        edgeitems=_EDGE,
        floatmode="maxprec",
    )
    shape = f", shape={x.shape}" if x.size == 0 else ""
    return f"tensor({body}{shape}, {_notes(x)})"


def _notes(x: Tensor) -> str:
    notes = [f"dtype={x.dtype!r}", f"device={x.device.name!r}"]
    if x.node is not None:
        notes.append(f"grad_fn={x.node.op.name}")
    elif x.requires_grad:
        notes.append("requires_grad=True")
    return ", ".join(notes)


def _edges(x: Tensor, axis: int = 0) -> np.ndarray:
    """Read a smaller array with the same abridged form: of a long axis its ends, and one element for the ellipsis."""
    if axis == x.ndim:
        return x.numpy()
    if x.shape[axis] <= 2 * _EDGE + 1:
        return _edges(x, axis + 1)
    before = (slice(None),) * axis
    ends = (slice(0, _EDGE + 1), slice(x.shape[axis] - _EDGE, x.shape[axis]))
    return np.concatenate([_edges(x[(*before, end)], axis + 1) for end in ends], axis)


def formatted(x: Tensor, spec: str) -> str:
    """Format the only element under `spec`; without a spec, the whole tensor. Raises TypeError for several elements."""
    if not spec:
        return render(x)
    if x.size != 1:
        problem = f"format {spec!r} is for one number, and a tensor of shape {x.shape} has {x.size}"
        raise TypeError(message("format", problem, fix="use .item(), .numpy(), or no format"))
    try:
        return format(x.item(), spec)
    except CaptureError:
        return render(x)
