"""Helpers of functions over images of one to three spatial axes: arguments per axis, and batches of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyhal.hal.errors import ShapeError, message
from polyhal.tensor import Tensor

Numbers = int | Sequence[int]
"""One number for all spatial axes, or one for each."""


def per_axis(value: Numbers, axes: int, name: str) -> tuple[int, ...]:
    """Expand one number for all axes to one for each. Raises ShapeError."""
    if isinstance(value, int):
        return (value,) * axes
    values = tuple(int(v) for v in value)
    if len(values) == 1:
        return values * axes
    if len(values) != axes:
        raise ShapeError(message(None, f"{name} is {value}", expected=f"one integer or {axes}"))
    return values


def batched(op: str, x: Tensor, axes: int) -> tuple[Tensor, bool]:
    """`x` as a batch (N, C, ...) with this many spatial axes, and whether it was a single image. Raises ShapeError."""
    if x.ndim == axes + 1:
        return x.unsqueeze(0), True
    if x.ndim != axes + 2:
        raise ShapeError(
            message(op, f"a tensor of shape {x.shape}", expected=f"(N, C, ...) or (C, ...) with {axes} spatial axes")
        )
    return x, False


def on_batch(op: str, x: Tensor, axes: int, function: Callable[[Tensor], Any]) -> Any:
    """Apply `function` to `x` as a batch, and drop the batch from its results if there was none."""
    x, single = batched(op, x, axes)
    out = function(x)
    if not single:
        return out
    return tuple(t.squeeze(0) for t in out) if isinstance(out, tuple) else out.squeeze(0)
