"""Exchanges of arrays with other libraries by DLPack, and which share memory: `python -m tests.array_api --dlpack`.

Memory is shared if both arrays have the same address. Elements are compared in either case.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import polyhal
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import UnsupportedDTypeError

DTYPES = "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"
_SHAPE = 4, 6


@dataclass(frozen=True)
class Library:
    """A library with `from_dlpack`."""

    name: str
    array: Callable[[ModuleType, np.ndarray], Any]
    """Makes an array of its own."""
    address: Callable[[Any], int]
    is_immutable: bool = False

    def load(self) -> ModuleType | None:
        """Import the library; None if it is not installed."""
        if self.name == "jax":
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
            os.environ.setdefault("JAX_ENABLE_X64", "1")
        try:
            module = importlib.import_module(self.name)
        except ImportError:
            return None
        return importlib.import_module("jax.numpy") if self.name == "jax" else module


LIBRARIES = {
    library.name: library
    for library in (
        Library("numpy", lambda np_, a: a.copy(), lambda a: a.__array_interface__["data"][0]),
        Library("torch", lambda torch, a: torch.tensor(a), lambda a: a.data_ptr()),
        Library("jax", lambda jnp, a: jnp.array(a), lambda a: a.unsafe_buffer_pointer(), is_immutable=True),
    )
}


@dataclass
class Exchanges:
    """Number of exchanges of a device with a library in one direction."""

    device: str
    library: str
    direction: str
    shared: int = 0
    copied: int = 0

    @property
    def row(self) -> str:
        """The counts as a row of a table."""
        return f"| {self.device} | {self.library} | {self.direction} | {self.shared} | {self.copied} |"


def host_address(x: polyhal.Tensor) -> int | None:
    """Return the address of a tensor's first element in the host's memory; None if its memory is elsewhere."""
    try:
        array = np.from_dlpack(x, copy=False)
    except BufferError:
        return None
    address: int = array.__array_interface__["data"][0]
    return address


def count(device: polyhal.Device, library: Library, module: ModuleType) -> tuple[Exchanges, Exchanges]:
    """Exchange arrays of each dtype that the device stores, in both directions. Raises AssertionError for wrong elements."""
    given = Exchanges(device.name, library.name, "polyhal to library")
    taken = Exchanges(device.name, library.name, "library to polyhal")
    for dtype in _stored(device):
        expected = np.arange(24).reshape(_SHAPE).astype(dtype)
        x = polyhal.tensor(expected, device=device)
        theirs = module.from_dlpack(x)
        np.testing.assert_array_equal(np.asarray(theirs), expected)
        _note(given, library.address(theirs), host_address(x))
        array = library.array(module, expected)
        ours = polyhal.from_dlpack(array, device=device)
        assert (ours.dtype.numpy.name, ours.shape) == (dtype, _SHAPE)
        np.testing.assert_array_equal(ours.numpy(), expected)
        _note(taken, library.address(array), host_address(ours))
    return given, taken


def _stored(device: polyhal.Device) -> Iterator[str]:
    for name in DTYPES:
        with contextlib.suppress(UnsupportedDTypeError):
            device.check_dtype(as_dtype(name))
            yield name


def _note(exchanges: Exchanges, theirs: int, ours: int | None) -> None:
    exchanges.shared += theirs == ours
    exchanges.copied += theirs != ours


def table(devices: list[str]) -> Iterator[str]:
    """Return the rows of a table for the installed libraries."""
    yield "| device | library | direction | shared | copied |"
    yield "|---|---|---|---:|---:|"
    for name in devices:
        for library in LIBRARIES.values():
            if (module := library.load()) is not None:
                for exchanges in count(polyhal.Device(name), library, module):
                    yield exchanges.row
