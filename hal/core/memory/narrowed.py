"""Arrays of 64-bit integers for devices without 64-bit integers: the numbers must fit the replacement dtype."""

from __future__ import annotations

import numpy as np

from polyhal.hal.dtypes import DType, iinfo
from polyhal.hal.errors import UnsupportedDTypeError, message


def narrowed(array: np.ndarray, dtype: DType, device: object) -> np.ndarray:
    """Return an array of integers in a narrower dtype. Raises UnsupportedDTypeError for a number that does not fit."""
    limits = iinfo(dtype)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if low < limits.min or high > limits.max:
        wrong = low if low < limits.min else high
        raise UnsupportedDTypeError(
            message(
                None,
                f"{wrong} does not fit {dtype.name}, which replaces {array.dtype.name} on this device",
                expected=f"numbers from {limits.min} to {limits.max}",
                fix="use smaller numbers, or a device with 64-bit integers",
                device=device,
            )
        )
    return array.astype(dtype.numpy)
