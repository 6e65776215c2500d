"""CuPy's functions behind the members of the contract, on arrays over the device's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from polyhal.hal import dtypes
from polyhal.hal.layout import Ref

Array = Any
"""`cupy.ndarray`, which has no type stubs."""
Function = Callable[..., Array]

COMPUTE = frozenset({
    dtypes.bool_, dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64, dtypes.float32, dtypes.float64,
})  # fmt: skip
"""Dtypes that CUDA can add atomically, for `scatter_add`, and bool.

In half precision every step of a formula would be rounded; the framework computes in float32 instead.
"""


def view(ref: Ref) -> Array:
    """Return the elements of `ref` as a CuPy array."""
    dtype = ref.dtype.numpy
    memory = cupy.cuda.UnownedMemory(ref.handle, 0, None)
    pointer = cupy.cuda.MemoryPointer(memory, ref.offset * dtype.itemsize)
    return cupy.ndarray(ref.shape, dtype, pointer, tuple(step * dtype.itemsize for step in ref.strides))


def divide(a: Array, b: Array, out: Array) -> Array:
    """Divide floats by IEEE 754; round quotients of integers towards zero."""
    if out.dtype.kind == "f":
        return cupy.true_divide(a, b, out=out)
    quotient = cupy.floor_divide(a, b, out=out)
    if out.dtype.kind == "i":
        quotient += (quotient < 0) & (quotient * b != a)
    return quotient


def gather(rows: Array, table: Array, out: Array) -> None:
    """Copy rows of a table; an index out of range yields zeros."""
    inside = (rows >= 0) & (rows < len(table))
    out[...] = cupy.where(inside[:, None], table[cupy.where(inside, rows, 0)], cupy.zeros((), table.dtype))


def scatter_add(rows: Array, src: Array, table: Array) -> None:
    """Add rows to rows of a table by atomic additions, whose order varies; skip indices out of range."""
    inside = (rows >= 0) & (rows < len(table))
    if table.dtype.kind == "i" and table.dtype.itemsize == 8:
        src, table = src.view("uint64"), table.view("uint64")  # equal bits, and CUDA adds no int64
    # An addition of -0.0 changes no bits of row 0, and a mask of rows would wait for the device.
    nothing = cupy.asarray(-0.0, table.dtype) if table.dtype.kind == "f" else cupy.zeros((), table.dtype)
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
