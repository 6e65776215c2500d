"""Element types, their promotion, and their NumPy counterparts.

Promotion follows the Array API inside a kind and PyTorch between kinds: an integer tensor with a float32 tensor
gives float32, float16 with bfloat16 gives float32, and a Python number never widens a tensor of its kind: an integer that the
tensor's dtype does not hold wraps, as in PyTorch, so that uint8 times 300 is uint8 times 44 on every device.

Complex dtypes exist only for users. A complex tensor is a pair of real ones, so that backends never see these dtypes: they are
not in `ALL`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

Kind = Literal["bool", "uint", "int", "float", "complex"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. Compared and hashed by identity: there is exactly one object per type."""

    name: str
    kind: Kind
    itemsize: int
    numpy: np.dtype

    def __repr__(self) -> str:
        return f"polyhal.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    @property
    def is_floating_point(self) -> bool:
        """True if this is float16, bfloat16, float32 or float64."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """True if this is complex64 or complex128."""
        return self.kind == "complex"

    @property
    def is_signed(self) -> bool:
        """True if there are negative numbers."""
        return self.kind in ("int", "float", "complex")

    @property
    def is_integral(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def bits(self) -> int:
        """Size of an element in bits."""
        return self.itemsize * 8


bool_ = DType("bool_", "bool", 1, np.dtype(np.bool_))
uint8 = DType("uint8", "uint", 1, np.dtype(np.uint8))
uint16 = DType("uint16", "uint", 2, np.dtype(np.uint16))
uint32 = DType("uint32", "uint", 4, np.dtype(np.uint32))
uint64 = DType("uint64", "uint", 8, np.dtype(np.uint64))
int8 = DType("int8", "int", 1, np.dtype(np.int8))
int16 = DType("int16", "int", 2, np.dtype(np.int16))
int32 = DType("int32", "int", 4, np.dtype(np.int32))
int64 = DType("int64", "int", 8, np.dtype(np.int64))
float16 = DType("float16", "float", 2, np.dtype(np.float16))
bfloat16 = DType("bfloat16", "float", 2, np.dtype(ml_dtypes.bfloat16))
float32 = DType("float32", "float", 4, np.dtype(np.float32))
float64 = DType("float64", "float", 8, np.dtype(np.float64))
complex64 = DType("complex64", "complex", 8, np.dtype(np.complex64))
complex128 = DType("complex128", "complex", 16, np.dtype(np.complex128))

ALL: tuple[DType, ...] = (
    bool_,
    uint8,
    uint16,
    uint32,
    uint64,
    int8,
    int16,
    int32,
    int64,
    float16,
    bfloat16,
    float32,
    float64,
)
REQUIRED: frozenset[DType] = frozenset({bool_, int32, float32})
"""Dtypes that every device stores and computes in."""
FLOATS: tuple[DType, ...] = (float16, bfloat16, float32, float64)
SIGNED: tuple[DType, ...] = (int8, int16, int32, int64)
UNSIGNED: tuple[DType, ...] = (uint8, uint16, uint32, uint64)
INTEGERS: tuple[DType, ...] = UNSIGNED + SIGNED
COMPLEX: tuple[DType, ...] = (complex64, complex128)

DEFAULT_FLOAT = float32
DEFAULT_INT = int64

_BY_NUMPY = {d.numpy: d for d in ALL + COMPLEX}
_BY_NAME = {d.name: d for d in ALL + COMPLEX} | {"bool": bool_}
_PYTHON = {bool: bool_, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: complex64}


def as_dtype(value: object) -> DType:
    """The DType that `value` names: a DType, its name, a NumPy dtype or scalar type, or Python's bool, int, float, complex.

    Raises TypeError when there is none.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    try:
        if value is None:  # which NumPy reads as float64
            raise TypeError
        return _BY_NUMPY[np.dtype(value)]  # type: ignore[call-overload]
    except (TypeError, KeyError, ValueError, SyntaxError):  # NumPy reads names as a small language
        names = ", ".join(d.name for d in ALL + COMPLEX)
        raise TypeError(f"{value!r} names no dtype of Polyhal; expected one of {names}") from None


def promote(a: DType, b: DType) -> DType:
    """The dtype that holds the result of an operation on `a` and `b`."""
    if a is b:
        return a
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.kind == "complex" or b.kind == "complex":
        return complex128 if float64 in (component(a), component(b)) else complex64
    if a.kind == "float" and b.kind == "float":
        if a.itemsize == b.itemsize:  # float16 and bfloat16: neither holds the other
            return float32
        return a if a.itemsize > b.itemsize else b
    if a.kind == "float":
        return a
    if b.kind == "float":
        return b
    if a.kind == b.kind:
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned is uint64:  # as NumPy: no integer holds both
        return float64
    return SIGNED[UNSIGNED.index(unsigned) + 1]


def component(dtype: DType) -> DType:
    """The dtype of the real and the imaginary part of a complex dtype; other dtypes themselves."""
    if dtype.kind != "complex":
        return dtype
    return float32 if dtype is complex64 else float64


def to_complex(dtype: DType) -> DType:
    """The complex dtype that holds numbers of `dtype`: complex128 for float64 and complex128, else complex64."""
    return complex128 if component(dtype) is float64 else complex64


_RANK: dict[Kind, int] = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def promote_scalar(dtype: DType, scalar: type) -> DType:
    """The dtype of a tensor of `dtype` with a Python number of type `scalar`: the number only lifts the kind."""
    weak = _PYTHON[scalar]
    if weak.kind == "complex":
        return to_complex(dtype)
    return dtype if _RANK[dtype.kind] >= _RANK[weak.kind] else weak


_KINDS: dict[str, frozenset[Kind]] = {
    "bool": frozenset({"bool"}),
    "signed integer": frozenset({"int"}),
    "unsigned integer": frozenset({"uint"}),
    "integral": frozenset({"int", "uint"}),
    "real floating": frozenset({"float"}),
    "complex floating": frozenset({"complex"}),
    "numeric": frozenset({"int", "uint", "float", "complex"}),
}
"""Kinds of dtypes that each name of the Array API stands for."""


def is_kind(dtype: DType, kind: object) -> bool:
    """Return whether `dtype` is of a kind of the Array API, or a dtype that `kind` names, or any of a tuple of both.

    Raises ValueError for a kind that the standard does not name, and TypeError.
    """
    if isinstance(kind, tuple):
        return any(is_kind(dtype, one) for one in kind)
    if not isinstance(kind, str) or (kind in _BY_NAME and kind not in _KINDS):
        return dtype is as_dtype(kind)
    if kind not in _KINDS:
        raise ValueError(f"[isdtype] kind {kind!r}; expected a dtype or one of {', '.join(_KINDS)}")
    return dtype.kind in _KINDS[kind]


def accumulator(dtype: DType) -> DType:
    """The dtype that sums of `dtype` are carried in: at least float32, 64-bit integers."""
    if dtype.kind == "float":
        return dtype if dtype.itemsize >= 4 else float32
    return uint64 if dtype.kind == "uint" else int64


def to_float(dtype: DType) -> DType:
    """`dtype` if it is floating point, else the default float."""
    return dtype if dtype.kind == "float" else DEFAULT_FLOAT


def stand_ins(storage: Collection[DType]) -> dict[DType, DType]:
    """Return the stand-in for each 64-bit integer dtype that is missing in `storage`: the narrower dtype that replaces it."""
    pairs = ((int64, int32), (uint64, uint32))
    return {wide: narrow for wide, narrow in pairs if wide not in storage and narrow in storage}


class FloatInfo(NamedTuple):
    """Machine limits of a floating-point dtype; `eps` is the gap between 1 and the next number."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntInfo(NamedTuple):
    """Machine limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(value: Any) -> object:
    """Return the dtype of a tensor; others themselves."""
    return value.dtype if hasattr(value, "ref") else value


def finfo(dtype: object) -> FloatInfo:
    """Limits of a floating-point dtype, of the parts of a complex one, or of a tensor's. Raises TypeError for other kinds."""
    d = component(as_dtype(_dtype_of(dtype)))
    if not d.is_floating_point:
        raise TypeError(f"finfo takes a floating-point dtype, got {d.name}; use iinfo for integers")
    info = ml_dtypes.finfo(d.numpy)  # type: ignore[no-untyped-call]
    return FloatInfo(d.bits, float(info.eps), float(info.max), float(info.min), float(info.smallest_normal), d)


def iinfo(dtype: object) -> IntInfo:
    """Limits of an integer dtype, or of a tensor's. Raises TypeError for other kinds."""
    d = as_dtype(_dtype_of(dtype))
    if not d.is_integral:
        raise TypeError(f"iinfo takes an integer dtype, got {d.name}; use finfo for floats")
    info = np.iinfo(d.numpy)
    return IntInfo(d.bits, int(info.max), int(info.min), d)
