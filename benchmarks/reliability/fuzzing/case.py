"""A format under test, an input of it, and content as something to compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import polyhal as ph


@dataclass(frozen=True, slots=True)
class HostileInput:
    """The files of one input by name."""

    files: Mapping[str, bytes]
    exact: bool = False
    """True if checksums protect the whole file, so that it must read like the undamaged
    one or be refused."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file that Polyhal reads."""

    name: str
    make: Callable[[Random], HostileInput]
    read: Callable[[Path], Any]
    """Reads an input from a folder through the public functions, and returns its
    content. Raises their errors."""
    original: HostileInput
    """An undamaged input."""
    allowance: int = 48 << 20
    """Bytes that reading any input may touch."""


def digest_of(value: Any) -> str:
    """Return a digest of content: equal for tensors, arrays and plain data that are equal bit by bit."""
    hasher = hashlib.sha256()
    _feed(hasher, value)
    return hasher.hexdigest()


def _feed(hasher: Any, value: Any) -> None:
    if isinstance(value, (ph.Tensor, np.ndarray)):
        array = value.numpy() if isinstance(value, ph.Tensor) else value
        hasher.update(f"{type(value).__name__} {array.dtype} {array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).tobytes())
    elif isinstance(value, Mapping):
        hasher.update(b"{")
        for key, part in value.items():
            hasher.update(repr(key).encode(errors="replace"))
            _feed(hasher, part)
        hasher.update(b"}")
    elif isinstance(value, (list, tuple)):
        hasher.update(type(value).__name__.encode())
        for part in value:
            _feed(hasher, part)
        hasher.update(b")")
    else:
        hasher.update(repr(value).encode(errors="replace"))
