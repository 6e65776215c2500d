"""Element types of 8 bits and fewer: floating-point formats, and integers of 4 and 2 bits.

No device stores them. Their arrays stay on the host, with the dtypes of the package ml_dtypes, between the nodes that make and
read them: Cast, QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from polyhal.onnx.element_types import device_dtype

_EXPONENTS = np.dtype(ml_dtypes.float8_e8m0fnu)
"""Powers of two without a sign: scales of blocks."""


def is_narrow(dtype: np.dtype) -> bool:
    """Return whether a dtype is a number of 8 bits or fewer that no device stores."""
    return device_dtype(dtype) is None and dtype.itemsize == 1 and dtype.kind not in "OSUc"


def is_integral(dtype: np.dtype) -> bool:
    """Return whether a dtype is an integer, which may be narrow."""
    found = device_dtype(dtype)
    return found.is_integral if found is not None else dtype.name.lstrip("u").startswith("int")


def limits(dtype: np.dtype) -> tuple[float, float]:
    """Return the least and the largest finite number of a narrow dtype."""
    describe: Any = ml_dtypes.iinfo if is_integral(dtype) else ml_dtypes.finfo
    info = describe(dtype)
    return float(info.min), float(info.max)


def narrowed(array: np.ndarray, dtype: np.dtype, *, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """Return an array in a narrow dtype, as ONNX's Cast does.

    Larger numbers and infinities become the largest number if `saturate` is true, else an infinity or NaN, as the format has.
    `round_mode` (up, down, nearest) is for powers of two; other formats round to nearest, ties to even. Integers wrap around,
    after the fraction is dropped.
    """
    if is_integral(dtype):
        with np.errstate(invalid="ignore"):  # of NaN, whose integer the standard does not define
            return array.astype(np.int64).astype(dtype)
    wide = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    if dtype == _EXPONENTS:
        return _power_of_two(wide, saturate, round_mode)
    return (np.clip(wide, *limits(dtype)) if saturate else wide).astype(dtype)


def _power_of_two(wide: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    """Return numbers as powers of two from 2**-127 to 2**127; NaN for negative ones."""
    fraction, exponent = np.frexp(wide)  # wide = fraction * 2**exponent, with a fraction of 0.5 or more and less than 1
    raised = {"up": fraction > 0.5, "down": np.zeros(wide.shape, bool), "nearest": fraction >= 0.75}[round_mode]
    power = np.where(wide == 0, -127, np.where(np.isinf(wide), 128, exponent - 1 + raised))
    kept = np.clip(power, -127, 127)
    known = (wide >= 0) & (saturate | (power == kept))
    return np.where(known, np.exp2(kept.astype(np.float64)), np.nan).astype(_EXPONENTS)


__all__ = ["is_integral", "is_narrow", "limits", "narrowed"]
