"""PyTorch's weights: the zip format of `torch.save` and the format before version 1.6.

Source of the formats: torch/serialization.py and torch/_utils.py. Only the pickle is read on opening; elements are read from
the file on demand.
"""

from __future__ import annotations

import io
import mmap
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, UnsupportedDTypeError, message
from polyhal.serialize.readers.archive import Archive
from polyhal.serialize.readers.opened import OpenedFile
from polyhal.serialize.readers.pickle_names import DATA_NAMES, resolved
from polyhal.serialize.readers.pickles import PickleConstructor, PickleReader, short
from polyhal.serialize.readers.stored import StoredTensors, as_tree, damage_named

_MAGIC = 0x1950A86A20F9469CFC6C
_FIX = "save weights in PyTorch as torch.save(model.state_dict(), path), or as safetensors"
_LARGEST_EXPANSION = 1 << 25
"""Maximum bytes of all tensors of a file, in addition to `_EXPANSION` times the size of each storage."""
_EXPANSION = 8
_SMALL_STORAGE = 1 << 16
"""Maximum bytes of a storage that is kept in memory while its tensors are read."""
_LARGEST_PICKLE = 1 << 26
"""Maximum bytes of a pickle without tensors; a larger one is limited to `_EXPANSION` times the size of the file."""

_STORAGE_KINDS: dict[str, DType | None] = {
    "FloatStorage": dtypes.float32, "DoubleStorage": dtypes.float64, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8, "BoolStorage": dtypes.bool_,
    "UntypedStorage": dtypes.uint8, "ComplexFloatStorage": None, "ComplexDoubleStorage": None,
    "QInt8Storage": None, "QUInt8Storage": None, "QInt32Storage": None,
}  # fmt: skip
_KINDS: dict[str, DType] = {
    "float32": dtypes.float32, "float": dtypes.float32, "float64": dtypes.float64, "double": dtypes.float64,
    "float16": dtypes.float16, "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "int64": dtypes.int64,
    "long": dtypes.int64, "int32": dtypes.int32, "int": dtypes.int32, "int16": dtypes.int16, "short": dtypes.int16,
    "int8": dtypes.int8, "uint8": dtypes.uint8, "uint16": dtypes.uint16, "uint32": dtypes.uint32,
    "uint64": dtypes.uint64, "bool": dtypes.bool_,
}  # fmt: skip


@dataclass(frozen=True)
class _Unsupported:
    """An element type that Polyhal does not support."""

    name: str


@dataclass(frozen=True, eq=False)
class _Storage:
    """A sequence of elements in the file."""

    key: Hashable
    dtype: DType
    count: int
    start: int
    """Index of the first element, for a view of another storage."""
    read: Callable[[int, int], bytes | bytearray]
    """Reader of bytes of the storage, by the first byte and their number."""
    swapped: bool

    def elements(self, dtype: DType, first: int, count: int) -> np.ndarray:
        """Return `count` elements from index `first`, in the byte order of this machine."""
        data = self.read(first * dtype.itemsize, count * dtype.itemsize)
        if dtype is dtypes.bool_:
            return np.not_equal(np.frombuffer(data, np.uint8), 0)
        words = np.frombuffer(data, f"u{dtype.itemsize}")
        elements: np.ndarray = (words.byteswap() if self.swapped else words).view(dtype.numpy)
        return elements


@dataclass(frozen=True, eq=False)
class _TorchTensor:
    """A view of a storage. Offset and strides count elements."""

    storage: _Storage
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def identity(self) -> Hashable:
        return self.storage.key, self.dtype, self.offset, self.shape, self.strides

    def read(self) -> np.ndarray:
        if 0 in self.shape:
            self.storage.elements(self.dtype, self.offset, 0)
            return np.zeros(self.shape, self.dtype.numpy)
        extent = _extent(self.shape, self.strides)
        elements = self.storage.elements(self.dtype, self.offset, extent)
        if extent > len(elements):
            raise ValueError("it has fewer elements than its shape requires")
        steps = tuple(s * self.dtype.itemsize for s in self.strides)
        view = np.lib.stride_tricks.as_strided(elements, self.shape, steps, writeable=False)
        return view.copy()


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first to the last of a view, inclusive."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _whole(values: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(type(v) is int and 0 <= v < 2**48 for v in values):
        raise ValueError(f"{short(values)} are not lengths or strides")
    return tuple(values)


def _device(kind: Any, index: int | None = None) -> str:
    if not isinstance(kind, str) or not (index is None or type(index) is int):
        raise ValueError("a device without a name")
    return kind if index is None else f"{kind}:{index}"


class _TensorMaker:
    """Constructs tensors of one file, and limits the memory of overlapping and broadcast ones."""

    def __init__(self) -> None:
        self._expansion = 0
        self._met: set[Hashable] = set()
        self._storages: set[Hashable] = set()

    def names(self) -> dict[str, Any]:
        """Return the globals that a pickle of PyTorch may use, with replacements."""
        make = PickleConstructor
        return {
            **DATA_NAMES,
            **{f"torch {name}": dtype or _Unsupported(name) for name, dtype in _STORAGE_KINDS.items()},
            **{f"torch.cuda {name}": dtype or _Unsupported(name) for name, dtype in _STORAGE_KINDS.items()},
            "torch.storage UntypedStorage": dtypes.uint8,
            **{f"torch {name}": dtype for name, dtype in _KINDS.items()},
            **{f"torch {name}": _Unsupported(name) for name in ("complex64", "complex128", "complex32")},
            **{f"torch float8_{form}": _Unsupported(f"float8_{form}") for form in ("e4m3fn", "e5m2", "e8m0fnu")},
            "torch Size": make(lambda lengths=(): _whole(lengths)),
            "torch device": make(_device),
            "torch Tensor": "torch.Tensor",
            "torch.nn.parameter Parameter": "torch.nn.Parameter",
            "torch._utils _rebuild_tensor": make(self._tensor),
            "torch._utils _rebuild_tensor_v2": make(self._tensor),
            "torch._utils _rebuild_tensor_v3": make(self._tensor_of_kind),
            "torch._utils _rebuild_parameter": make(lambda data, requires_grad=True, hooks=None: data),
            "torch._utils _rebuild_parameter_with_state": make(lambda data, grad, hooks, state: data),
            "torch._tensor _rebuild_from_type_v2": make(self._from_type),
        }

    @staticmethod
    def _from_type(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
        if not isinstance(function, PickleConstructor) or not isinstance(arguments, tuple):
            raise ValueError("a tensor of an unknown class")
        return function.make(*arguments)

    def _tensor(
        self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
    ) -> _TorchTensor:
        return self._view(storage, None, offset, shape, strides)

    def _tensor_of_kind(
        self,
        storage: _Storage,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        grad: bool,
        hooks: Any,
        dtype: DType,
        *_: Any,
    ) -> _TorchTensor:
        return self._view(storage, dtype, offset, shape, strides)

    def _view(
        self, storage: _Storage, dtype: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> _TorchTensor:
        if not isinstance(storage, _Storage):
            raise ValueError("a tensor without storage")
        kind = storage.dtype if dtype is None else supported(dtype)
        (first,), lengths, steps = _whole((offset,)), _whole(shape), _whole(strides)
        available = storage.count * storage.dtype.itemsize // kind.itemsize
        extent = 0 if 0 in lengths else _extent(lengths, steps)
        if len(lengths) != len(steps) or first + extent > available:
            raise ValueError(f"a tensor of shape {lengths} at {first} in a storage of {available} elements")
        tensor = _TorchTensor(storage, kind, storage.start + first, lengths, steps)
        if tensor.identity not in self._met:
            self._met.add(tensor.identity)
            self._count(storage, int(np.prod(lengths, dtype=object)) * kind.itemsize)
        return tensor

    def _count(self, storage: _Storage, nbytes: int) -> None:
        """Count the bytes of a tensor. Raises ValueError if all tensors are much larger than the storages that they view."""
        if storage.key not in self._storages:
            self._storages.add(storage.key)
            self._expansion -= _EXPANSION * (storage.start + storage.count) * storage.dtype.itemsize
        self._expansion += nbytes
        if self._expansion > _LARGEST_EXPANSION:
            raise ValueError(f"broadcast tensors of {self._expansion} bytes")


def supported(dtype: DType) -> DType:
    """Return the dtype of a storage. Raises UnsupportedDTypeError for one that Polyhal does not support."""
    if isinstance(dtype, _Unsupported):
        raise UnsupportedDTypeError(
            message("load", f"the file has tensors of {dtype.name}", expected="real numbers or bool")
        )
    if not isinstance(dtype, DType):
        raise ValueError("a storage without a dtype")
    return dtype


def is_torch_archive(archive: Archive) -> bool:
    """Return whether a zip file was written by `torch.save`."""
    return _root(archive) is not None


def _root(archive: Archive) -> str | None:
    """Return the folder inside of the archive, with a slash."""
    return next(
        (n.removesuffix("data.pkl") for n in archive.members if n == "data.pkl" or n.endswith("/data.pkl")), None
    )


def open_torch_archive(archive: Archive) -> tuple[Any, StoredTensors]:
    """Return the state in a zip file of `torch.save`. Raises CorruptFileError, IncompatibleFileError if it is not data."""
    root = _root(archive)
    path = archive.path
    if any(name.startswith(f"{root}code/") for name in archive.members):
        raise IncompatibleFileError(
            message("load", f"{path} is a program of TorchScript", expected="weights", fix=_FIX)
        )
    storages: dict[tuple[str, DType], _Storage] = {}
    with damage_named(path):
        order = archive.read(f"{root}byteorder") if f"{root}byteorder" in archive.members else b"little"
        if order not in (b"little", b"big"):
            raise ValueError(f"byte order {short(order)}")

        def persistent(reference: Any) -> _Storage:
            mark, dtype, key, _, count = reference
            member = f"{root}data/{key}"
            if mark != "storage" or not isinstance(key, str):
                raise ValueError("a reference to an object that is not a storage")
            kind = supported(dtype)
            if (key, kind) not in storages:
                (n,) = _whole((count,))
                if archive.size(member) < n * kind.itemsize:
                    raise ValueError(f"storage {key!r} has fewer than {n} elements")
                read = _StorageBytes(partial(archive.read_part, member), n * kind.itemsize)
                storages[key, kind] = _Storage(key, kind, n, 0, read, order.decode() != sys.byteorder)
            return storages[key, kind]

        pickled = archive.size(f"{root}data.pkl")
        if pickled > max(_LARGEST_PICKLE, _EXPANSION * archive.file.size):
            raise ValueError(f"a description of the tensors of {pickled} bytes")
        return _opened(archive.file, archive.read(f"{root}data.pkl"), persistent)


class _StorageBytes:
    """The bytes of a storage, read in parts. A small storage is cached, because many views may share one."""

    def __init__(self, read: Callable[[int, int], bytes | bytearray], nbytes: int) -> None:
        self._read = read
        self._nbytes = nbytes
        self._data: bytes | bytearray | None = None

    def __call__(self, first: int, count: int) -> bytes | bytearray:
        if self._nbytes > _SMALL_STORAGE:
            return self._read(first, count)
        if self._data is None:
            self._data = self._read(0, self._nbytes)
        return self._data[first : first + count]


def _opened(
    file: OpenedFile, pickled: bytes | bytearray, persistent: Callable[[Any], Any]
) -> tuple[Any, StoredTensors]:
    state = PickleReader(_TensorMaker().names(), persistent, _FIX).read(io.BytesIO(pickled))
    source = StoredTensors(file)
    return as_tree(resolved(state), source), source


def open_pickle(file: OpenedFile) -> tuple[Any, StoredTensors]:
    """Return the state in a file of `torch.save` before PyTorch 1.6, or in a pickle of arrays and plain data."""
    source, path = StoredTensors(file), file.path
    with damage_named(path), mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        storages = _LegacyStorages(file)
        reader = PickleReader(_TensorMaker().names(), storages.resolve, _FIX)
        state = reader.read(mapped)  # type: ignore[arg-type]
        if state == _MAGIC:
            protocol, system = reader.read(mapped), reader.read(mapped)  # type: ignore[arg-type]
            if protocol != 1001 or not isinstance(system, dict):
                raise IncompatibleFileError(message("load", f"{path} has protocol {short(protocol)}", expected="1001"))
            state = reader.read(mapped)  # type: ignore[arg-type]
            storages.locate(reader.read(mapped), mapped)  # type: ignore[arg-type]
        return as_tree(resolved(state), source), source


class _LegacyStorages:
    """Storages of the old format, which follow the pickles: 8 bytes for the number of elements, then the elements."""

    def __init__(self, file: OpenedFile) -> None:
        self._file = file
        self._kinds: dict[str, tuple[DType, int]] = {}
        self._places: dict[str, tuple[int, int]] = {}

    def resolve(self, reference: Any) -> Any:
        """Return the object to which a reference in the pickle refers."""
        if reference[0] == "module":
            return reference[1]
        mark, dtype, key, _, count, view = reference
        if mark != "storage" or not isinstance(key, str):
            raise ValueError("a reference to an object that is not a storage")
        (n,), kind = _whole((count,)), supported(dtype)
        if self._kinds.setdefault(key, (kind, n)) != (kind, n):
            raise ValueError(f"storage {key!r} has two sizes")
        start = 0
        if view is not None:
            _, start, size = view
            start, size = _whole((start, size))
            if start + size > n:
                raise ValueError(f"a view beyond the end of storage {key!r}")
            n = start + size
        read = _StorageBytes(partial(self._read, key), n * kind.itemsize)
        return _Storage(key, kind, n - start, start, read, sys.byteorder == "big")

    def locate(self, keys: Any, file: Any) -> None:
        """Find the offsets of the storages after the pickles."""
        size = file.size()
        if (
            not isinstance(keys, list)
            or not all(isinstance(key, str) for key in keys)
            or not self._kinds.keys() <= set(keys)
        ):
            raise ValueError("storages are missing")
        for key in keys:
            kind, expected = self._kinds[key]
            count = int.from_bytes(file.read(8), "little")
            begin = file.tell()
            length = count * kind.itemsize
            if count != expected or begin + length > size:
                raise CorruptFileError(
                    message("load", f"{self._file.path} ends inside storage {key!r}, or it has another size")
                )
            self._places[key] = begin, length
            file.seek(length, 1)

    def _read(self, key: str, first: int, count: int) -> bytes:
        begin, length = self._places[key]
        return self._file.read(begin + first, min(count, length - first))
