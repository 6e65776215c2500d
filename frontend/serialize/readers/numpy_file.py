"""NumPy's files: an array (.npy), or an archive of arrays by name (.npz). Arrays of objects are read without unpickling."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import CorruptFileError, UnsupportedDTypeError, message
from polyhal.serialize.readers.archive import Archive
from polyhal.serialize.readers.opened import OpenedFile
from polyhal.serialize.readers.pickle_names import DATA_NAMES, listed, nested, resolved
from polyhal.serialize.readers.pickles import PickleReader
from polyhal.serialize.readers.stored import StoredTensors, as_tree, damage_named

_HEADER_LIMIT = 1 << 17
_FIX = "save arrays of numbers, or what polyhal.save takes"


@dataclass(frozen=True)
class _Header:
    """An array's header, and the offset of its data."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    begin: int

    @property
    def nbytes(self) -> int:
        count = 1
        for n in self.shape:
            count *= n
        return count * self.dtype.itemsize


def _header(data: bytes | bytearray) -> _Header:
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of NumPy's format")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(file)
    except tokenize.TokenError as error:  # raised by NumPy for headers of Python 2
        raise ValueError("its header is not a dictionary") from error
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape}")
    return _Header(shape, fortran, dtype, file.tell())


@dataclass(frozen=True, eq=False)
class _NumpyTensor:
    """An array of numbers in an archive."""

    archive: Archive
    member: str
    shape: tuple[int, ...]

    @property
    def identity(self) -> Hashable:
        return self.member

    def read(self) -> np.ndarray:
        data = self.archive.read(self.member)
        return _array(data, _header(data))


def _array(data: bytes | bytearray, header: _Header) -> np.ndarray:
    if len(data) - header.begin != header.nbytes:
        raise ValueError(f"{len(data) - header.begin} bytes for shape {header.shape} of {header.dtype}")
    flat = np.frombuffer(data, header.dtype, offset=header.begin) if header.nbytes else np.zeros(0, header.dtype)
    array = flat.reshape(header.shape, order="F" if header.fortran else "C")
    return np.ascontiguousarray(array.astype(header.dtype.newbyteorder("="))).reshape(header.shape)


def _content(data: bytes | bytearray, header: _Header, where: str) -> Any:
    """Return an array that is not numeric: text as strings, objects through a restricted reader."""
    if header.dtype.kind == "O":
        value = PickleReader(DATA_NAMES, None, _FIX).read(io.BytesIO(data[header.begin :]))
        value = resolved(value)
        return (
            nested(value, header.shape) if isinstance(value, list) and header.shape == () and len(value) == 1 else value
        )
    if header.dtype.kind in "US":
        return listed(_array(data, header))
    try:
        as_dtype(header.dtype.newbyteorder("="))
    except TypeError as error:
        raise UnsupportedDTypeError(
            message("load", f"{where} has elements of {header.dtype}", expected="real numbers, bool or text")
        ) from error
    return _array(data, header)


def open_npz(archive: Archive) -> tuple[Any, StoredTensors]:
    """Return the arrays of an archive by name. Names with slashes become nested dictionaries."""
    source = StoredTensors(archive.file)
    state: dict[str, Any] = {}
    for member in archive.members:
        with damage_named(archive.path, f"array {member!r}"):
            if not member.endswith(".npy"):
                raise CorruptFileError(message("load", f"{archive.path} contains {member!r}", expected="arrays (.npy)"))
            header = _header(archive.read(member, _HEADER_LIMIT))
            if header.dtype.kind in "biuf" and header.dtype.itemsize <= 8:
                if archive.size(member) - header.begin != header.nbytes:
                    raise ValueError(f"{archive.size(member)} bytes for shape {header.shape} of {header.dtype}")
                value: Any = _NumpyTensor(archive, member, header.shape)
            else:
                value = _content(archive.read(member), header, f"{member!r} of {archive.path}")
            _place(state, member.removesuffix(".npy"), value)
    with damage_named(archive.path):
        return as_tree(state, source), source


def _place(state: dict[str, Any], name: str, value: Any) -> None:
    *folders, last = name.split("/")
    for folder in folders:
        state = state.setdefault(folder, {})
        if not isinstance(state, dict):
            raise ValueError(f"{name!r} is inside of an array")
    if last in state:
        raise ValueError(f"{name!r} occurs twice")
    state[last] = value


@dataclass(frozen=True, eq=False)
class _FileTensor:
    """An array of numbers that is a whole file."""

    file: OpenedFile
    shape: tuple[int, ...]

    @property
    def identity(self) -> Hashable:
        return self.file.path

    def read(self) -> np.ndarray:
        data = self.file.read()
        return _array(data, _header(data))


def open_npy(file: OpenedFile) -> tuple[Any, StoredTensors]:
    """Return the array in a file, as a tensor."""
    source = StoredTensors(file)
    with damage_named(file.path):
        header = _header(file.read(0, _HEADER_LIMIT))
        numbers = header.dtype.kind in "biuf" and header.dtype.itemsize <= 8
        value = _FileTensor(file, header.shape) if numbers else _content(file.read(), header, str(file.path))
        return as_tree(value, source), source
