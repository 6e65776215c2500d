"""What the decompositions of optimizer steps share: live numbers as tensors, and steps that are skipped on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.ops.layout.creation import broadcast_scalar
from polyhal.hal.ops.pointwise.logic import greater
from polyhal.hal.ops.pointwise.selection import where


def as_tensor(number: Any, param: Any) -> Any:
    """A number that varies between calls as a tensor of one element, in float64 beside float64 parameters, else float32."""
    return broadcast_scalar(number, (), dtypes.float64 if param.dtype is dtypes.float64 else dtypes.float32)


def where_stepping(step: Any, new: Sequence[Any], old: Sequence[Any]) -> Sequence[Any]:
    """`new` parameters and states if the number of the step is above 0 or None, else the `old` ones."""
    if step is None:
        return new
    stepping = greater(step, 0)
    return tuple(where(stepping, n, o) for n, o in zip(new, old, strict=True))
