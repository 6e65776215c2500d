"""Reductions over rows of host arrays, in the order of the rows; half precision is accumulated in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_HALVES = (_BFLOAT16, np.dtype(np.float16))
_BLOCK = 1 << 16
"""Elements that are converted at a time, so that they stay in the CPU's cache."""


def reduce_rows(rows: np.ndarray, reduction: str, out: np.ndarray) -> None:
    """Reduce rows (R, N) to `out` (N,): sum, max or min of any dtype, or mean of floating dtypes, in the order of the rows."""
    if reduction in ("sum", "mean") and rows.dtype in _HALVES:
        for start in range(0, rows.shape[1], _BLOCK):
            block = rows[:, start : start + _BLOCK]
            total = widened(block[0])
            with np.errstate(over="ignore", invalid="ignore"):
                for row in block[1:]:
                    total += widened(row)
            if reduction == "mean":
                total /= len(rows)
            narrow(total, out[start : start + _BLOCK])
        return
    combine = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}[reduction]
    if len(rows) == 1:
        out[:] = rows[0]
        return
    with np.errstate(over="ignore", invalid="ignore"):
        combine(rows[0], rows[1], out=out)
        for row in rows[2:]:
            combine(out, row, out=out)
    if reduction == "mean":
        out /= len(rows)


def widened(values: np.ndarray) -> np.ndarray:
    """Convert half-precision values (N,) to float32. For bfloat16 that is a bit shift, which NumPy vectorizes."""
    if values.dtype != _BFLOAT16:
        return values.astype(np.float32)
    bits = values.view(np.uint16).astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def narrow(values: np.ndarray, out: np.ndarray) -> None:
    """Round float32 values (N,) to nearest, ties to even, into the half-precision array `out`. Overwrites `values`."""
    if out.dtype != _BFLOAT16:
        with np.errstate(over="ignore"):
            out[:] = values
        return
    nans = np.isnan(values)
    bits = values.view(np.uint32)
    odd = bits >> 16
    odd &= 1
    odd += 0x7FFF
    bits += odd
    bits >>= 16
    out.view(np.uint16)[:] = bits
    if nans.any():
        out[nans] = np.nan
