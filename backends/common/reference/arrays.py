"""Device memory as arrays: views of the bytes of an allocation, conversion of half precision on load, casts on store."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from polyhal.hal.core.dispatch.number_range import in_64_bits
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Number

_HALF_PRECISION = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def view_memory(spec: Spec, memory: Any, offset: int) -> np.ndarray:
    """Return the elements of a tensor as a view of `memory`, a buffer of bytes. `offset` counts elements."""
    size = spec.dtype.itemsize
    strides = tuple([s * size for s in spec.strides])
    return np.ndarray(spec.shape, spec.dtype.numpy, buffer=memory, offset=offset * size, strides=strides)


def upcast(x: np.ndarray) -> np.ndarray:
    """Return values of half precision as float32, so that a formula rounds once, when its result is stored."""
    return x.astype(np.float32) if x.dtype in _HALF_PRECISION else x


def store(value: Any, out: np.ndarray) -> None:
    """Cast a result to the dtype of `out` and store it in `out`."""
    with np.errstate(all="ignore"):
        np.copyto(out, value, casting="unsafe")


def in_range(value: Number, dtype: DType) -> Number:
    """Wrap an integer to the range of an integer dtype, because NumPy raises outside it.

    Raises NumberRangeError beyond 64 bits.
    """
    if type(value) is int:
        in_64_bits(value)
    if type(value) is int and dtype.is_integral:
        value &= (1 << dtype.bits) - 1
        return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value
    return value
