"""Data of the program as NumPy arrays of a supported dtype, on its way to a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch.number_range import require_fit
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import message


def to_numpy(data: Any, dtype: DType | None) -> tuple[np.ndarray, DType]:
    """Convert data to a NumPy array and the dtype it has here. Raises TypeError for ragged or non-numeric data.

    Without `dtype`, Python floats become float32, complex numbers complex64 and integers int64; arrays keep theirs.
    """
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise TypeError(
            message(
                "tensor",
                f"the data is no regular array: {error}",
                expected="numbers, nested lists of one shape, or NumPy arrays",
            )
        ) from error
    if array.dtype.kind not in "biufcV" or (array.dtype.kind == "V" and array.dtype != dtypes.bfloat16.numpy):
        raise TypeError(
            message(
                "tensor",
                f"the data has NumPy dtype {array.dtype}",
                expected="bool, integers, floats or complex numbers",
            )
        )
    if dtype is None:
        if isinstance(data, np.ndarray | np.generic) or hasattr(data, "__array__"):
            dtype = as_dtype(array.dtype)
        elif array.dtype.kind == "f" or array.size == 0:
            dtype = dtypes.DEFAULT_FLOAT
        elif array.dtype.kind == "c":
            dtype = dtypes.complex64
        else:
            dtype = as_dtype(array.dtype)
    if array.dtype.kind == "c" and dtype.kind != "complex":
        raise TypeError(
            message(
                "tensor", f"complex numbers as {dtype.name}", expected="a complex dtype", fix="pass their real part"
            )
        )
    if array.size and array.dtype.kind in "iu" and not hasattr(data, "__array__"):
        for extreme in (array.min(), array.max()):
            require_fit("tensor", int(extreme), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(dtype.numpy, copy=False), dtype


def names_dtype(text: str) -> bool:
    """Return whether a string is the name of a dtype, NumPy's short ones such as "f4" included, and not of a device."""
    try:
        dtypes.as_dtype(text)
    except TypeError:
        return False
    return True
