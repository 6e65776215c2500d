"""Safetensors files, written and read tensor by tensor, with a hash of each.

Source of the format: https://github.com/huggingface/safetensors: 8 bytes with the length of the header, the header as JSON,
then the bytes of the tensors. The library of the format reads the files, but does not write them, because it requires all
tensors in memory at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from safetensors import SafetensorError, safe_open

from polyhal.hal import dtypes
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.core.settings import json_store
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import CorruptFileError, PolyhalError, UnsupportedDTypeError, message
from polyhal.serialize.readers.opened import OpenedFile
from polyhal.tensor import Tensor

_NAMES: dict[DType, str] = {
    dtypes.bool_: "BOOL",
    dtypes.uint8: "U8",
    dtypes.uint16: "U16",
    dtypes.uint32: "U32",
    dtypes.uint64: "U64",
    dtypes.int8: "I8",
    dtypes.int16: "I16",
    dtypes.int32: "I32",
    dtypes.int64: "I64",
    dtypes.float16: "F16",
    dtypes.bfloat16: "BF16",
    dtypes.float32: "F32",
    dtypes.float64: "F64",
}
_BLANK = "0" * 64
"""Placeholder for a hash, of equal length."""
HASHES = "polyhal.sha256"
STATE = "polyhal.state"
STATE_HASH = "polyhal.state_sha256"
SCHEMA = "polyhal.schema"


def digest(*parts: Any) -> str:
    """Return the SHA-256 of bytes as 64 hexadecimal digits."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def tensor_digest(array: np.ndarray) -> str:
    """Return the SHA-256 of a tensor: of its dtype and shape as text (`F32[2,3]`) and its bytes."""
    lengths = ",".join(str(n) for n in array.shape)
    kind = f"{_NAMES[as_dtype(array.dtype)]}[{lengths}]"
    return digest(kind.encode(), byte_view(np.ascontiguousarray(array)))


def _described(x: Tensor | np.ndarray) -> tuple[DType, tuple[int, ...]]:
    return (x.dtype, x.shape) if isinstance(x, Tensor) else (as_dtype(x.dtype), x.shape)


def write(file: BinaryIO, tensors: Mapping[str, Tensor | np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a whole safetensors file.

    Tensors are downloaded one at a time; their hashes are written to the header at the end.
    """
    file.write(_header(tensors, metadata, dict.fromkeys(tensors, _BLANK)))
    hashes: dict[str, str] = {}
    for name, x in tensors.items():
        array = x.numpy() if isinstance(x, Tensor) else x
        hashes[name] = tensor_digest(array)
        file.write(byte_view(np.ascontiguousarray(array)))
    file.seek(0)
    file.write(_header(tensors, metadata, hashes))
    file.seek(0, os.SEEK_END)


def _header(
    tensors: Mapping[str, Tensor | np.ndarray], metadata: Mapping[str, str], hashes: Mapping[str, str]
) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {**metadata, HASHES: json.dumps(hashes)}}
    start = 0
    for name, x in tensors.items():
        dtype, shape = _described(x)
        stop = start + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        entries[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


class TensorFile:
    """A safetensors file on disk. It is opened once, so that a later file of the same name is not read."""

    def __init__(self, path: Path) -> None:
        """Read the header. Raises CorruptFileError, with the name of the first truncated tensor, and FileNotFoundError."""
        self.path = path
        OpenedFile(path)  # raises for a FIFO: the library would block until another process opens it
        try:
            self._opened = cast(Any, safe_open)(path, framework="numpy")
            self.names: list[str] = list(self._opened.keys())
            self.metadata: dict[str, str] = self._opened.metadata() or {}
        except SafetensorError as error:
            if not _begins_as_safetensors(path):
                formats = "a file of safetensors, PyTorch or NumPy"
                problem = f"{path} is damaged, or its format is unknown"
                raise CorruptFileError(message("load", problem, expected=formats)) from error
            raise CorruptFileError(
                message(
                    "load", f"{path} is damaged: {_diagnose(path) or error}", expected="a complete safetensors file"
                )
            ) from error
        self.hashes: dict[str, str] = _json(self.metadata.get(HASHES, "{}"), path)

    def read(self, name: str) -> np.ndarray:
        """Read one tensor. Raises CorruptFileError if its hash differs from the stored one."""
        with self._reading(name):
            kind = self._opened.get_slice(name).get_dtype()
            if kind not in _NAMES.values():
                problem = f"tensor {name!r} of {self.path} has elements of {kind}"
                raise UnsupportedDTypeError(message("load", problem, expected="real numbers or bool"))
            array: np.ndarray = self._opened.get_tensor(name)
        if SCHEMA in self.metadata:
            digest = tensor_digest(array)
            if self.hashes.get(name) != digest:
                raise CorruptFileError(
                    message(
                        "load",
                        f"tensor {name!r} of {self.path} was altered: its SHA-256 is {digest}",
                        expected=f"{self.hashes.get(name)}",
                    )
                )
        return array

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor, from the header."""
        with self._reading(name):
            return tuple(self._opened.get_slice(name).get_shape())

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Convert errors of the library and of NumPy, which rejects more shapes, to CorruptFileError."""
        try:
            yield
        except (SafetensorError, ValueError, OverflowError) as error:
            if isinstance(error, PolyhalError):
                raise
            raise CorruptFileError(
                message("load", f"tensor {name!r} of {self.path} cannot be read: {error}")
            ) from error


def _json(text: str, path: Path) -> dict[str, Any]:
    data = json_store.parse(text, f"the header of {path}")
    if not isinstance(data, dict):
        raise CorruptFileError(
            message("load", f"the header of {path} is damaged: {type(data).__name__}", expected="an object")
        )
    return data


def _begins_as_safetensors(path: Path) -> bool:
    """Return whether a JSON object follows the length of the header, as far as the file goes."""
    with path.open("rb") as file:
        return file.read(9)[8:] in (b"", b"{")


def _diagnose(path: Path) -> str:
    """Describe where a file of the wrong length ends, with the name of the tensor if its header can be read."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 + length:
            return f"it ends after {size} bytes, inside the header"
        try:
            header = json_store.parse(file.read(length), path)
            tensors = [(int(e["data_offsets"][1]), name) for name, e in header.items() if name != "__metadata__"]
        except (CorruptFileError, KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError):
            return "its header cannot be read"
    held = size - 8 - length
    cut = sorted((stop, name) for stop, name in tensors if stop > held)
    return f"it ends after {size} bytes, inside tensor {cut[0][1]!r}" if cut else ""
