"""Tensors in the memory of their device, as other libraries take them: DLPack, without a copy through the host.

Source: the header dlpack.h, version 0.8, and the Python specification of DLPack.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import message
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.peer_memory import DeviceAddress, SupportsDeviceAddress
from polyhal.tensor import Tensor

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_BFLOAT = 4
HOST = 1
"""DLPack's number for the host's memory."""
_NAME = b"dltensor"


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


class _Owner:
    """Structure that a capsule points to. It owns one reference to itself until the deleter is called."""

    def __init__(self, export: DeviceExport) -> None:
        spec, place = export.ref.spec, export.place
        self.export = export
        self.shape = (ctypes.c_int64 * spec.ndim)(*spec.shape)
        self.strides = (ctypes.c_int64 * spec.ndim)(*spec.strides)
        tensor = _DLTensor(
            place.address,
            place.kind,
            place.number,
            spec.ndim,
            _code(spec.dtype),
            spec.dtype.itemsize * 8,
            1,
            self.shape,
            self.strides,
            export.ref.offset * spec.dtype.itemsize,
        )
        self.managed = _DLManagedTensor(tensor, id(self), ctypes.cast(_DELETE, ctypes.c_void_p).value)


def _delete(managed: int) -> None:
    """The deleter of DLPack."""
    owner = _DLManagedTensor.from_address(managed).owner
    ctypes.pythonapi.Py_DecRef(ctypes.cast(owner, ctypes.py_object))


def _drop(capsule: int) -> None:
    """Delete the structure of a capsule unless it was consumed: consumed capsules have another name."""
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    if valid(capsule, _NAME):
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.argtypes, pointer.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p
        _delete(pointer(capsule, _NAME))


_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DELETE, _DROP = _DESTRUCTOR(_delete), _DESTRUCTOR(_drop)
"""Deleter as a C function pointer."""


class DeviceExport:
    """A tensor's memory for `from_dlpack` of another library, which then shares it: writes of either are seen by both.

    The memory lives as long as this object or the arrays made from it.
    """

    def __init__(self, tensor: Tensor) -> None:
        """Copy the tensor on its device if its memory has no address. Raises BufferError if the device has no addresses."""
        self._tensor = tensor.detach()
        self.ref = tensor.ref
        place = _address(tensor.device, tensor.ref.handle)
        if place is None:
            place = self._copy(tensor)
        self.place = place

    def _copy(self, tensor: Tensor) -> DeviceAddress:
        device, backend = tensor.device, tensor.device.backend
        dense = contiguous(tensor.dtype, tensor.shape)
        handle = backend.allocate_addressable(dense.nbytes) if isinstance(backend, SupportsDeviceAddress) else None
        place = None if handle is None else _address(device, handle)
        if handle is None or place is None:
            problem = "the device has no memory that other libraries reach"
            fix = "leave device=True out, which copies to the host's memory"
            raise BufferError(message("to_dlpack", problem, fix=fix, device=device))
        weakref.finalize(self, backend.deallocate, handle).atexit = False
        self.ref = Ref(handle, dense, 0)
        backend.copy(tensor.ref, self.ref)
        return place

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, ...] | None = None,
        dl_device: tuple[int, ...] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule. Waits for the device, so that the elements are there on every stream of the other library.

        Raises BufferError for another device than the tensor's, and for `copy=True`.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            problem = f"device {dl_device} and copy={copy} were asked for"
            raise BufferError(message("dlpack", problem, expected=f"{self.__dlpack_device__()} and no copy"))
        self._tensor.device.synchronize()
        owner = _Owner(self)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        return new(ctypes.addressof(owner.managed), _NAME, ctypes.cast(_DROP, ctypes.c_void_p))

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind of device and its number: (2, 0) for the first CUDA device."""
        return self.place.kind, self.place.number


def _address(device: Device, handle: Any) -> DeviceAddress | None:
    backend = device.backend
    return backend.device_address(handle) if isinstance(backend, SupportsDeviceAddress) else None


def _code(dtype: DType) -> int:
    return _BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.kind]


def host_capsule(tensor: Tensor, options: dict[str, Any]) -> Any:
    """Return the capsule of `Tensor.__dlpack__` for the keyword arguments of the consumer.

    Raises BufferError for a copy of bfloat16, which NumPy cannot export, and with `copy=False` if a copy is needed.
    """
    copy = options.get("copy")
    executes = dispatch.thread.executor.replays_graphs  # what is being recorded has no memory
    if executes and not copy and not tensor.dtype.is_complex and tensor.size:
        place = _address(tensor.device, tensor.ref.handle)
        if place is not None and place.kind == HOST:
            return DeviceExport(tensor).__dlpack__(**options)
    if copy is False:
        raise BufferError(message("dlpack", "this takes a copy", fix="leave copy=False out", device=tensor.device))
    return tensor.numpy().__dlpack__(**options)
