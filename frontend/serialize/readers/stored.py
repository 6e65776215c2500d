"""Tensors in files, and trees that contain them."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyhal.hal.errors import CorruptFileError, PolyhalError, message
from polyhal.serialize.readers.opened import OpenedFile

_LARGEST_TREE = 1 << 20
"""Maximum values in a tree, in addition to `_VALUES_PER_BYTE` per byte of the file: nested references multiply values."""
_VALUES_PER_BYTE = 64
"""Upper bound of the values per byte of a pickle, even a compressed one."""


@runtime_checkable
class StoredTensor(Protocol):
    """One tensor in a file, read on demand."""

    shape: tuple[int, ...]

    @property
    def identity(self) -> Hashable:
        """Key that is equal for tensors with the same elements at the same offset."""

    def read(self) -> np.ndarray:
        """Read the elements. Raises CorruptFileError."""


class TensorSource(Protocol):
    """Tensors of a file by name, read on demand."""

    path: Path

    @property
    def names(self) -> list[str]:
        """Names of all tensors."""

    def read(self, name: str) -> np.ndarray:
        """Read one tensor. Raises CorruptFileError."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor, without reading it."""


class StoredTensors:
    """A source of stored tensors, named by `add`. Tensors of equal identity share a name, and share memory when loaded."""

    def __init__(self, file: OpenedFile) -> None:
        self.path = file.path
        self.nbytes = file.size
        self._tensors: dict[str, StoredTensor] = {}
        self._names: dict[Hashable, str] = {}

    @property
    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self._tensors)

    def add(self, tensor: StoredTensor, path: str) -> str:
        """Add a tensor found at `path`, and return its name."""
        name = self._names.get(tensor.identity)
        if name is None:
            name, count = path or "value", 1
            while name in self._tensors:
                count += 1
                name = f"{path or 'value'}~{count}"
            self._tensors[name] = tensor
            self._names[tensor.identity] = name
        return name

    def read(self, name: str) -> np.ndarray:
        """Read one tensor. Raises CorruptFileError."""
        with damage_named(self.path, f"tensor {name!r}"):
            return self._tensors[name].read()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor."""
        return self._tensors[name].shape


def as_tree(value: Any, source: StoredTensors) -> Any:
    """Convert Python data with stored tensors to the form that `tree.decode` reads; tensors are added to `source`.

    Raises CorruptFileError for data that contains itself or that is larger than any checkpoint.
    """
    _measure(value, {}, set(), _LARGEST_TREE + _VALUES_PER_BYTE * source.nbytes)
    return _converted(value, source, "")


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return tuple(value.values())
    return tuple(value) if isinstance(value, (list, tuple)) else ()


def _measure(value: Any, sizes: dict[int, int], open_now: set[int], limit: int) -> int:
    """Count the values in a tree; shared parts count at each occurrence, but are visited once."""
    parts = _parts(value)
    if not parts:
        return 1
    key = id(value)
    if key in sizes:
        return sizes[key]
    if key in open_now:
        raise CorruptFileError(message("load", "the state contains itself", expected="a tree"))
    open_now.add(key)
    size = 1 + sum(_measure(part, sizes, open_now, limit) for part in parts)
    open_now.remove(key)
    if size > limit:
        raise CorruptFileError(message("load", f"the state has more than {limit} values, for the size of its file"))
    sizes[key] = size
    return size


def _converted(value: Any, source: StoredTensors, path: str) -> Any:
    if isinstance(value, StoredTensor):
        return {"$tensor": source.add(value, path)}
    if isinstance(value, list):
        return [_converted(v, source, f"{path}.{i}" if path else str(i)) for i, v in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [_converted(v, source, f"{path}.{i}" if path else str(i)) for i, v in enumerate(value)]}
    if isinstance(value, Mapping):
        entries = [(k, _converted(v, source, f"{path}.{k}" if path else str(k))) for k, v in value.items()]
        if all(isinstance(k, str) and not k.startswith("$") for k, _ in entries):
            return dict(entries)
        return {"$dict": [[k, v] for k, v in entries]}
    return value


def is_file(path: Path) -> bool:
    """Return whether the file exists; False for invalid names, which a damaged file may contain."""
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def damage_named(path: Path, what: str = "its content") -> AbstractContextManager[None]:
    """Convert errors from reading damaged data to one CorruptFileError with the name of the file."""
    return damage_reported(f"{path} is damaged: {what} cannot be read")


@contextmanager
def damage_reported(problem: str, op: str = "load") -> Iterator[None]:
    """Convert the errors that invalid data of a file causes in the code to one CorruptFileError that states the problem.

    Errors of Polyhal, of the operating system and of memory pass unchanged.
    """
    try:
        yield
    except PolyhalError:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        EOFError,
        struct.error,
        RecursionError,
        AssertionError,
        SyntaxError,
    ) as error:
        raise CorruptFileError(message(op, f"{problem}: {type(error).__name__}: {error}")) from error
