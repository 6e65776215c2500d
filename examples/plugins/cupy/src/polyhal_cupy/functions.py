"""CuPy's functions behind the members of the contract, on arrays over the device's memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import Number

Array = Any
"""`cupy.ndarray`, which has no type stubs."""
Function = Callable[..., Any]

_FULL = {dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64, dtypes.float32, dtypes.float64}
COMPUTE = frozenset({dtypes.bool_} | _FULL)
"""Dtypes that CUDA can add atomically, for `scatter_add`, and bool.

In half precision every step of a formula would be rounded; the framework computes in float32 instead.
"""
_WORD = (1 << 64) - 1


def view(ref: Ref) -> Array:
    """Return the elements of `ref` as a CuPy array."""
    dtype = ref.dtype.numpy
    memory = cupy.cuda.UnownedMemory(ref.handle, 0, None)
    pointer = cupy.cuda.MemoryPointer(memory, ref.offset * dtype.itemsize)
    return cupy.ndarray(ref.shape, dtype, pointer, tuple(step * dtype.itemsize for step in ref.strides))


def fill(value: Number, out: Array) -> None:
    """Set every element; integers wrap."""
    if out.dtype.kind in "iu":
        out[...] = np.uint64(int(value) & _WORD).astype(out.dtype)
    elif value == 0 and math.copysign(1, value) < 0:
        out[...] = 0
        cupy.negative(out, out=out)  # CuPy fills with bytes of 0 for -0.0
    else:
        out[...] = value


def divide(a: Array, b: Array, out: Array) -> None:
    """Divide floats by IEEE 754; round quotients of integers towards zero."""
    if out.dtype.kind == "f":
        cupy.true_divide(a, b, out=out)
        return
    quotient = cupy.floor_divide(a, b)
    out[...] = quotient + ((quotient < 0) & (quotient * b != a))


def gather(rows: Array, table: Array, out: Array) -> None:
    """Copy rows of a table as bits; an index out of range yields zeros."""
    inside = (rows >= 0) & (rows < len(table))
    bits = f"uint{8 * table.dtype.itemsize}"
    out.view(bits)[...] = cupy.where(inside[:, None], table.view(bits)[cupy.where(inside, rows, 0)], 0)


def scatter_add(rows: Array, src: Array, table: Array) -> None:
    """Add rows to rows of a table by atomic additions, whose order varies; skip indices out of range."""
    inside = (rows >= 0) & (rows < len(table))
    if table.dtype.kind == "i" and table.dtype.itemsize == 8:
        src, table = src.view("uint64"), table.view("uint64")  # equal bits, and CUDA adds no int64
    # An addition of -0.0 changes no bits of row 0, and a selection of rows would wait for the device.
    nothing = -0.0 if table.dtype.kind == "f" else 0
    cupy.add.at(table, cupy.where(inside, rows, 0), cupy.where(inside[:, None], src, nothing))


UNARY: dict[str, Function] = {
    "neg": cupy.negative,
    "not": cupy.invert,
    "abs": cupy.absolute,
    "asin": cupy.arcsin,
    "acos": cupy.arccos,
    "atan": cupy.arctan,
    **{name: getattr(cupy, name) for name in (
        "exp", "log", "sqrt", "sin", "floor",
        "cos", "tan", "sinh", "cosh", "tanh", "exp2", "expm1", "log2", "log10", "log1p", "ceil", "trunc", "square",
        "isnan", "isinf", "isfinite",
    )},
}  # fmt: skip
BINARY: dict[str, Function] = {
    "add": cupy.add,
    "sub": cupy.subtract,
    "mul": cupy.multiply,
    "div": divide,
    "max": cupy.maximum,
    "min": cupy.minimum,
    "lt": cupy.less,
    "eq": cupy.equal,
    "and": cupy.bitwise_and,
    "or": cupy.bitwise_or,
    "xor": cupy.bitwise_xor,
    "shl": cupy.left_shift,
    "shr": cupy.right_shift,
    "atan2": cupy.arctan2,
    **{name: getattr(cupy, name) for name in ("fmod", "not_equal", "greater", "greater_equal", "less_equal")},
}
REDUCE: dict[str, Function] = {name: getattr(cupy, name) for name in ("sum", "prod", "max", "min", "any", "all")}
