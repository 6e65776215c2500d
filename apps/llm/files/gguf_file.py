"""GGUF files, read: metadata and tensors, with every number checked before it is used.

Format: github.com/ggml-org/ggml, docs/gguf.md: a header, pairs of keys and typed values, descriptions of tensors, padding, and
the tensors' bytes at multiples of the alignment. Versions 2 and 3, both byte orders. The `gguf` package does not read the
header here, because it follows counts of the file without a bound.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.llm.files.tensor_types import TENSOR_TYPES, TensorType

_MAGIC = b"GGUF"
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", _BOOL: "?", 10: "u8", 11: "i8", 12: "f8"}
_DEEPEST_ARRAY = 4
_MOST_AXES = 4
_SMALLEST_TENSOR, _SMALLEST_PAIR = 32, 13
"""Minimum bytes of a description of a tensor, and of a pair of key and value."""
_LARGEST_ALIGNMENT = 1 << 20
FLOATS = {"f32": "f4", "f16": "f2", "bf16": "u2", "f64": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}
"""NumPy's types of formats without blocks."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor in a file. `shape` has the slowest axis first, as in NumPy."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    """Position of the first byte in the file."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return prod(self.shape) // self.type.block * self.type.block_bytes


class GgufFile:
    """A GGUF file on disk: `metadata` by key, `tensors` by name. It stays mapped, and tensors are read on demand.

    Raises CorruptFileError, with the value that does not fit, and IncompatibleFileError for other versions.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._map = _mapped(self.path)
        cursor = _Cursor(self._map, self.path)
        if cursor.bytes(4, "the magic number") != _MAGIC:
            raise CorruptFileError(
                message("GgufFile", f"{path} is not a GGUF file", expected="its first bytes to be GGUF")
            )
        self.version = cursor.version()
        self.byte_order = cursor.order
        """`<` or `>`."""
        tensors, pairs = cursor.number("u8", "tensor count"), cursor.number("u8", "metadata count")
        cursor.check_count("tensors", tensors, _SMALLEST_TENSOR)
        cursor.check_count("metadata values", pairs, _SMALLEST_PAIR)
        self.metadata: dict[str, Any] = {}
        self.types: dict[str, tuple[int, int | None]] = {}
        """Numbers of the types of a value, and of the items of a list, by key."""
        for _ in range(pairs):
            key = cursor.text("a key")
            if key in self.metadata:
                raise cursor.damaged(f"the key {key!r} occurs twice")
            kind = cursor.number("u4", f"type of {key}")
            self.types[key] = (kind, cursor.peek() if kind == _ARRAY else None)
            self.metadata[key] = cursor.value(kind, key)
        self.alignment = self._alignment(cursor)
        found = [_tensor(cursor) for _ in range(tensors)]
        start = -(-cursor.place // self.alignment) * self.alignment
        self.tensors = {t.name: GgufTensor(t.name, t.shape, t.type, start + t.offset) for t in found}
        if len(self.tensors) != len(found):
            names = [t.name for t in found]
            twice = next(name for name in names if names.count(name) > 1)
            raise cursor.damaged(f"tensor {twice!r} occurs twice")
        self._check_places(cursor)

    def _alignment(self, cursor: _Cursor) -> int:
        found = self.metadata.get("general.alignment", 32)
        if type(found) is not int or not 1 <= found <= _LARGEST_ALIGNMENT or found & (found - 1):
            raise cursor.damaged(f"general.alignment is {found!r}", f"a power of two up to {_LARGEST_ALIGNMENT}")
        return found

    def _check_places(self, cursor: _Cursor) -> None:
        end, previous = 0, ""
        for tensor in sorted(self.tensors.values(), key=lambda t: t.offset):
            if tensor.offset % self.alignment:
                problem = f"tensor {tensor.name!r} starts at {tensor.offset}"
                raise cursor.damaged(problem, f"a multiple of {self.alignment}")
            if tensor.offset < end:
                raise cursor.damaged(f"tensor {tensor.name!r} overlaps with {previous!r}")
            end, previous = tensor.offset + tensor.nbytes, tensor.name
            if end > len(self._map):
                problem = f"it ends after {len(self._map)} bytes, inside tensor {tensor.name!r} of shape {tensor.shape}"
                raise cursor.damaged(problem, f"{end} bytes or more")

    def read(self, name: str) -> np.ndarray:
        """Return a tensor: numbers, or for a format of blocks uint8 (..., bytes of a row). It is a view of the file.

        Raises IncompatibleFileError for blocks of the other byte order.
        """
        tensor = self.tensors[name]
        data = np.frombuffer(self._map, np.uint8, tensor.nbytes, tensor.offset)
        kind = FLOATS.get(tensor.type.name)
        if kind is None:
            if self.byte_order == ">":
                problem = f"tensor {name!r} of {self.path} has blocks of {tensor.type.name} in big-endian order"
                fix = "convert the file with gguf's gguf_convert_endian"
                raise IncompatibleFileError(message("GgufFile", problem, fix=fix))
            return data.reshape(*tensor.shape[:-1], -1)
        values = data.view(f"{self.byte_order}{kind}").reshape(tensor.shape)
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        return native.view(ml_dtypes.bfloat16) if tensor.type.name == "bf16" else native


def _mapped(path: Path) -> bytes | mmap.mmap:
    """Map a regular file. Raises OSError, and CorruptFileError for an empty file, a folder or a pipe."""
    if not path.is_file():
        if not path.exists():
            raise FileNotFoundError(message("GgufFile", f"{path} does not exist"))
        raise CorruptFileError(message("GgufFile", f"{path} is not a file"))
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise CorruptFileError(message("GgufFile", f"{path} is empty"))
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _tensor(cursor: _Cursor) -> GgufTensor:
    """Read the description of a tensor; its offset is relative to the first tensor."""
    name = cursor.text("the name of a tensor")
    axes = cursor.number("u4", f"number of axes of {name!r}")
    if not 1 <= axes <= _MOST_AXES:
        raise cursor.damaged(f"tensor {name!r} has {axes} axes", f"1 to {_MOST_AXES}")
    shape = tuple(cursor.number("u8", f"an axis of {name!r}") for _ in range(axes))[::-1]
    number = cursor.number("u4", f"type of {name!r}")
    offset = cursor.number("u8", f"offset of {name!r}")
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        raise cursor.damaged(f"tensor {name!r} has type {number}", f"one of {', '.join(map(str, TENSOR_TYPES))}")
    if not prod(shape) or shape[-1] % kind.block:
        problem = f"tensor {name!r} of type {kind.name} has shape {shape}"
        raise cursor.damaged(problem, f"rows that are multiples of {kind.block}")
    return GgufTensor(name, shape, kind, offset)


class _Cursor:
    """A place in the header. Each read is checked against the end of the file first."""

    def __init__(self, data: bytes | mmap.mmap, path: Path) -> None:
        self._data, self._path = data, path
        self.place = 0
        self.order = "<"

    def damaged(self, problem: str, expected: str = "") -> CorruptFileError:
        """Return the error of a file that contradicts itself."""
        return CorruptFileError(message("GgufFile", f"{self._path} is damaged: {problem}", expected=expected))

    def check_count(self, what: str, count: int, smallest: int) -> None:
        """Raise CorruptFileError if the rest of the file is too short for so many things."""
        room = (len(self._data) - self.place) // smallest
        if count > room:
            raise self.damaged(f"it states {count} {what}", f"at most {room} in {len(self._data)} bytes")

    def bytes(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        if count > len(self._data) - self.place:
            raise self.damaged(f"{what} of {count} bytes at {self.place} exceeds its {len(self._data)} bytes")
        self.place += count
        return self._data[self.place - count : self.place]

    def number(self, kind: str, what: str) -> int:
        """Return the next integer."""
        size = int(kind[1])
        return int.from_bytes(self.bytes(size, what), "little" if self.order == "<" else "big")

    def peek(self) -> int:
        """Return the next 32-bit number, and stay before it."""
        found = self.number("u4", "the type of items")
        self.place -= 4
        return found

    def version(self) -> int:
        """Return the version of the format; it shows the byte order."""
        found = self.number("u4", "the version")
        if found & 0xFFFF == 0:
            self.order, found = ">", int.from_bytes(found.to_bytes(4, "little"), "big")
        if found not in (2, 3):
            problem = f"{self._path} has version {found}"
            raise IncompatibleFileError(message("GgufFile", problem, expected="GGUF of version 2 or 3"))
        return found

    def text(self, what: str) -> str:
        """Return the next string."""
        length = self.number("u8", f"length of {what}")
        data = self.bytes(length, what)
        return data.decode("utf-8", errors="replace")

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        """Return the next value: a number, a bool, a string, a NumPy array of numbers, or a list."""
        if kind == _STRING:
            return self.text(f"the value of {key}")
        if kind == _ARRAY:
            return self._array(key, depth)
        if kind not in _SCALARS:
            raise self.damaged(f"the value of {key} has type {kind}", "0 to 12")
        form = np.dtype(f"{self.order}{_SCALARS[kind]}" if kind != _BOOL else "u1")
        number = np.frombuffer(self.bytes(form.itemsize, f"the value of {key}"), form)[0].item()
        return bool(number) if kind == _BOOL else number

    def _array(self, key: str, depth: int) -> Any:
        kind = self.number("u4", f"type of the items of {key}")
        count = self.number("u8", f"number of items of {key}")
        if kind in _SCALARS:
            form = np.dtype(f"{self.order}{_SCALARS[kind]}" if kind != _BOOL else "u1")
            self.check_count(f"items of {key}", count, form.itemsize)
            values = np.frombuffer(self.bytes(count * form.itemsize, f"the value of {key}"), form)
            return values.astype(bool if kind == _BOOL else form.newbyteorder("="), copy=False)
        self.check_count(f"items of {key}", count, 8)
        if kind == _STRING:
            return self._strings(count, key)
        if depth >= _DEEPEST_ARRAY:
            raise self.damaged(f"the lists of {key} are nested more than {_DEEPEST_ARRAY} deep")
        return [self.value(kind, key, depth + 1) for _ in range(count)]

    def _strings(self, count: int, key: str) -> list[str]:
        """Return the next strings; there may be hundreds of thousands."""
        data, place, size = self._data, self.place, len(self._data)
        length = struct.Struct(f"{self.order}Q")
        found: list[str] = []
        for _ in range(count):
            end = place + 8
            stop = end + length.unpack_from(data, place)[0] if end <= size else size + 1
            if stop > size:
                raise self.damaged(f"item {len(found)} of {key} exceeds its {size} bytes")
            found.append(data[end:stop].decode("utf-8", errors="replace"))
            place = stop
        self.place = place
        return found
