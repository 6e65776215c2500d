"""Capsules of DLPack: the C structures by which libraries pass arrays to each other.

Source: the header dlpack.h, version 1.1, and the Python specification of DLPack.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.layout import Ref, contiguous_strides
from polyhal.hal.peer_memory import DeviceAddress

_CODES = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_BFLOAT = 4
_NAME, _VERSIONED = b"dltensor", b"dltensor_versioned"
_READ_ONLY, _COPIED = 1, 2
"""Flags of a versioned structure."""
VERSION = (1, 0)
"""Newest version of the structures that are written and read here."""
_PYTHON = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _PYTHON))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _PYTHON))
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _PYTHON)
)
"""Own prototypes of Python's functions: those of `ctypes.pythonapi` are shared by all modules. A capsule is passed as its
address, because its destructor must not make a reference to it."""


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("owner", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


class _Owner:
    """Structure that a capsule points to. It owns one reference to itself until the deleter is called."""

    def __init__(self, kept: object, ref: Ref, place: DeviceAddress, versioned: bool, copied: bool) -> None:
        """`kept` is referenced as long as the structure."""
        spec = ref.spec
        self._kept = kept
        self._shape = (ctypes.c_int64 * spec.ndim)(*spec.shape)
        self._strides = (ctypes.c_int64 * spec.ndim)(*spec.strides)
        size = spec.dtype.itemsize
        tensor = _DLTensor(
            place.address,
            place.kind,
            place.number,
            spec.ndim,
            _code(spec.dtype),
            size * 8,
            1,
            self._shape,
            self._strides,
            ref.offset * size,
        )
        self.managed: _DLManagedTensor | _DLManagedTensorVersioned
        if versioned:
            flags = _COPIED if copied else 0
            self.managed = _DLManagedTensorVersioned(*VERSION, id(self), _address_of(_DELETE_VERSIONED), flags, tensor)
        else:
            self.managed = _DLManagedTensor(tensor, id(self), _address_of(_DELETE))


def _release(owner: int) -> None:
    _PYTHON.Py_DecRef(ctypes.cast(owner, ctypes.py_object))


def _delete(managed: int) -> None:
    """The deleter of DLPack."""
    _release(_DLManagedTensor.from_address(managed).owner)


def _delete_versioned(managed: int) -> None:
    """The deleter of DLPack since version 1.0."""
    _release(_DLManagedTensorVersioned.from_address(managed).owner)


def _drop(capsule: int) -> None:
    """Delete the structure of a capsule unless it was consumed: consumed capsules have another name."""
    for name, delete in ((_NAME, _delete), (_VERSIONED, _delete_versioned)):
        if _is_valid(capsule, name):
            delete(_pointer(capsule, name))


_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DELETE, _DELETE_VERSIONED, _DROP = _DESTRUCTOR(_delete), _DESTRUCTOR(_delete_versioned), _DESTRUCTOR(_drop)
"""Deleters as C function pointers."""


def _address_of(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def new_capsule(kept: object, ref: Ref, place: DeviceAddress, versioned: bool = False, copied: bool = False) -> Any:
    """Return a capsule for the elements of `ref` in the memory at `place`, which lives as long as `kept`.

    `copied` tells consumers of versioned capsules that nobody else uses the memory.
    """
    owner = _Owner(kept, ref, place, versioned, copied)
    _PYTHON.Py_IncRef(ctypes.py_object(owner))
    name = _VERSIONED if versioned else _NAME
    return _new(ctypes.addressof(owner.managed), name, _address_of(_DROP))


class ArrayInMemory(NamedTuple):
    """An array of another library."""

    address: int
    """Of the first element, by index."""
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    read_only: bool
    owner: Any
    """Object that keeps the memory alive."""


def read_capsule(capsule: Any) -> ArrayInMemory:
    """Return the array of a capsule, which keeps the memory alive: it is never marked as consumed, so that it owns the array.

    Raises BufferError for an object that is not an unconsumed capsule, and UnsupportedDTypeError.
    """
    if _is_valid(id(capsule), _VERSIONED):
        managed = _DLManagedTensorVersioned.from_address(_pointer(id(capsule), _VERSIONED))
        if managed.major != VERSION[0]:
            problem = f"the capsule has version {managed.major}.{managed.minor}"
            raise BufferError(message("from_dlpack", problem, expected="a version 1.x"))
        tensor, read_only = managed.tensor, bool(managed.flags & _READ_ONLY)
    elif _is_valid(id(capsule), _NAME):
        tensor, read_only = _DLManagedTensor.from_address(_pointer(id(capsule), _NAME)).tensor, False
    else:
        expected = "a capsule of DLPack that nobody has taken"
        raise BufferError(message("from_dlpack", f"__dlpack__ returned {capsule!r}", expected=expected))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else contiguous_strides(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return ArrayInMemory(address, _dtype(tensor.code, tensor.bits, tensor.lanes), shape, strides, read_only, capsule)


def _code(dtype: DType) -> int:
    return _BFLOAT if dtype is dtypes.bfloat16 else _CODES[dtype.kind]


def _dtype(code: int, bits: int, lanes: int) -> DType:
    for dtype in (*dtypes.ALL, dtypes.complex64, dtypes.complex128):
        if lanes == 1 and (_code(dtype), dtype.itemsize * 8) == (code, bits):
            return dtype
    problem = f"the elements have DLPack's type code {code} with {bits} bits in {lanes} lanes"
    raise UnsupportedDTypeError(message("from_dlpack", problem, expected="bool, integers, floats or complex numbers"))
