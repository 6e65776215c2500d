"""Another CUDA library of the process, with a stream of its own: a producer and consumer of arrays by both protocols.

Capsules of DLPack are NumPy's, with the device changed: NumPy writes and reads the structures, so that Polyhal's are compared
with another implementation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from emulated_backend import Emulation
from emulated_machine import EmulatedStream, number_of

from polyhal.backends.common.cuda_context import PrimaryContext

_OFFSETS = {b"dltensor": 8, b"dltensor_versioned": 40}
"""Bytes before the kind of device in the structures of a capsule."""
_HOST, _CUDA = 1, 2
DEFAULT_STREAM = 1


_PYTHON = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _PYTHON))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _PYTHON))


def place_of(capsule: Any) -> Any:
    """Return the kind and the number of the device in a capsule, as an array of the structure's memory."""
    (name,) = (n for n in _OFFSETS if _is_valid(capsule, n))
    return (ctypes.c_int32 * 2).from_address(_pointer(capsule, name) + _OFFSETS[name])


def is_versioned(capsule: Any) -> bool:
    """Return whether a capsule has the structure of DLPack 1.0."""
    return bool(_is_valid(capsule, b"dltensor_versioned"))


class Memory(np.ndarray):
    """Elements in the memory of a device, which can be watched."""


class ForeignLibrary:
    """A library that works on one device, with the default stream or a non-blocking one of its own."""

    def __init__(self, emulation: Emulation, ordinal: int = 0, *, own_stream: bool = False) -> None:
        self.ordinal = ordinal
        self.machine = emulation.library.machine
        self.context = PrimaryContext(emulation.driver, ordinal)
        self.driver = emulation.driver
        self.stream = DEFAULT_STREAM
        self.queue = self.machine.devices[ordinal].context.default
        if own_stream:
            with self.context:
                handle = self.driver.value("cuStreamCreate", "CUstream *", 1)
            self.queue = self.machine.handles.get("CUstream", handle)
            self.stream = number_of(handle)

    def memory(self, shape: tuple[int, ...], dtype: Any) -> Memory:
        """Allocate an array."""
        array = np.empty(shape, dtype)
        block = self.machine.memory.add(max(array.nbytes, 1), self.machine.devices[self.ordinal])
        block.allocated = True
        return block.bytes[: array.nbytes].view(dtype).reshape(shape).view(Memory)

    def unowned(self, array: np.ndarray) -> np.ndarray:
        """Return the elements of an array without a reference to their owner, as a running kernel has them."""
        block = self.machine.memory.find(array.ctypes.data)
        assert block is not None
        start = array.ctypes.data - block.address
        return block.bytes[start : start + array.nbytes].view(array.dtype).reshape(array.shape)

    def array(self, values: Any, dtype: Any = np.float32) -> ForeignArray:
        """Return an array to which the stream writes values when it runs."""
        values = np.asarray(values, dtype)
        memory = self.memory(values.shape, dtype)
        self.run(lambda: np.copyto(memory, values))
        return ForeignArray(self, memory)

    def run(self, work: Callable[[], object]) -> None:
        """Enqueue work on the library's stream."""

        def run() -> None:
            work()

        self.queue.add(run)

    def synchronize(self) -> None:
        """Wait for the library's stream."""
        self.queue.finish()

    def order(self, number: int | None) -> None:
        """Make another stream wait for the library's, as a producer does."""
        if number in (None, DEFAULT_STREAM):
            stream: EmulatedStream = self.machine.devices[self.ordinal].context.default
        else:
            stream = self.machine.handles.get("CUstream", number)
        if stream is not self.queue:
            stream.add(None, (self.queue.add(None),))

    def from_dlpack(self, x: Any, **options: Any) -> np.ndarray:
        """Return the memory of an array of another library. Work on it is enqueued by `run`."""
        assert x.__dlpack_device__() == (_CUDA, self.ordinal)
        capsule = x.__dlpack__(stream=self.stream, max_version=(1, 0), **options)
        place = place_of(capsule)
        assert tuple(place) == (_CUDA, self.ordinal)
        place[0], place[1] = _HOST, 0
        return np.from_dlpack(_Offered(capsule))

    def from_interface(self, x: Any) -> np.ndarray:
        """Return the memory of an object with `__cuda_array_interface__`."""
        interface = dict(x.__cuda_array_interface__)
        assert interface["version"] == 3
        stream = interface.pop("stream")
        if stream is not None:
            producer = self.machine.handles.get("CUstream", stream)
            self.queue.add(None, (producer.add(None),))
        return np.asarray(_HostInterface(interface, x))


class _Offered:
    """A capsule for NumPy."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule


class _HostInterface:
    """An object with NumPy's interface, which keeps another one alive."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self._owner = owner


class ForeignArray:
    """An array of a library, with DLPack."""

    def __init__(self, library: ForeignLibrary, memory: np.ndarray) -> None:
        self.library = library
        self.memory = memory

    @property
    def address(self) -> int:
        """The address of the first element."""
        return int(self.memory.ctypes.data)

    def __getitem__(self, index: Any) -> ForeignArray:
        return type(self)(self.library, self.memory[index])

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self.library.ordinal

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        self.library.order(stream)
        capsule = self.memory.__dlpack__(max_version=max_version)
        place = place_of(capsule)
        place[0], place[1] = _CUDA, self.library.ordinal
        return capsule

    def add(self, number: float) -> None:
        """Enqueue `self += number` on the library's stream."""
        self.library.run(lambda: np.add(self.memory, number, out=self.memory, casting="unsafe"))


class UnversionedArray(ForeignArray):
    """An array of a library from before versions of DLPack."""

    def __dlpack__(self, *, stream: int | None = None) -> Any:  # type: ignore[override]
        return super().__dlpack__(stream=stream)


class InterfaceArray:
    """An array of a library with CUDA's array interface only. `changes` replace its entries."""

    def __init__(self, array: ForeignArray, **changes: Any) -> None:
        self.array = array
        self.changes = changes
        self.shape = array.memory.shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        memory, library = self.array.memory, self.array.library
        return {
            "shape": memory.shape,
            "typestr": memory.dtype.str,
            "data": (self.array.address if memory.size else 0, not memory.flags.writeable),
            "strides": None if memory.flags.c_contiguous else memory.strides,
            "stream": library.stream,
            "version": 3,
            **self.changes,
        }
