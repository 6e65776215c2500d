"""Tensors in the memory of their device, as other libraries take them, without a copy: DLPack and CUDA's array interface.

Source: the Python specification of DLPack, and version 3 of the CUDA array interface, of Numba's documentation.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.peer_memory import DeviceAddress, SupportsDeviceAddress
from polyhal.tensor import Tensor
from polyhal.tensor.dlpack_capsules import VERSION, new_capsule

if TYPE_CHECKING:
    from polyhal.hal.core.memory.foreign import ForeignMemory
    from polyhal.hal.device import Device

HOST = 1
"""DLPack's number for the host's memory."""
_HOST_PLACE = (HOST, 0)
_DEFAULT_STREAM, _NO_ORDER = 1, -1
"""DLPack's numbers of CUDA's default stream, and of no stream: the consumer orders its work by itself."""
_NO_TYPE_STRINGS = "CUDA's array interface has no type string for {}; DLPack has: torch.from_dlpack(x)"


class DeviceExport:
    """A tensor's memory for `from_dlpack` of another library, which then shares it: writes of either are seen by both.

    The memory lives as long as this object or the arrays made from it.
    """

    def __init__(self, tensor: Tensor) -> None:
        """Copy the tensor on its device if others cannot use its memory. Raises BufferError if the device has no addresses.

        Negative strides take a copy, too: PyTorch aborts the process for them.
        """
        self.copied = False
        place = _place(tensor)
        if place is not None and any(stride < 0 for stride in tensor.ref.strides):
            self.copied, tensor = True, FUNCTIONS["copy"](tensor.detach())
            place = _place(tensor)
        self._tensor = tensor.detach()
        self.ref = tensor.ref
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
        self.copied = True
        backend.copy(tensor.ref, self.ref)
        return place

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, ...] | None = None,
        dl_device: tuple[int, ...] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule.

        `stream` is the consumer's, in DLPack's terms: it waits for the tensor's device, without blocking the host; -1 leaves
        the order to the consumer. On devices without such streams the host waits. Raises BufferError for another device than
        the tensor's and for `copy=True`, and ValueError for `stream=0`, which stands for two streams.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            problem = f"device {dl_device} and copy={copy} were asked for"
            raise BufferError(message("dlpack", problem, expected=f"{self.__dlpack_device__()} and no copy"))
        device = self._tensor.device
        foreign = device.foreign
        if foreign is None:
            device.synchronize()
        else:
            foreign.lend(self._tensor.buffer)
            _order(foreign, stream)
        return new_capsule(self, self.ref, self.place, bool(max_version and max_version[0] >= VERSION[0]), self.copied)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind of device and its number: (2, 0) for the first CUDA device."""
        return self.place.kind, self.place.number


def _order(foreign: ForeignMemory, stream: int | None) -> None:
    """Make the stream of a consumer wait for the device."""
    if stream is None:
        stream = _DEFAULT_STREAM
    if type(stream) is not int or stream < _NO_ORDER or stream == 0:
        expected = "-1, 1 for the default stream, 2 for the thread's, or the driver's handle of a stream"
        raise ValueError(message("dlpack", f"got stream={stream!r}", expected=expected))
    if stream != _NO_ORDER:
        foreign.driver.let_stream_wait(stream)


def _place(tensor: Tensor) -> DeviceAddress | None:
    """Return the address of a tensor's memory; None if others cannot use it."""
    foreign = tensor.device.foreign
    if foreign is not None and not tensor.size:
        return DeviceAddress(*foreign.space, 0)
    return _address(tensor.device, tensor.ref.handle)


def _address(device: Device, handle: Any) -> DeviceAddress | None:
    backend = device.backend
    return backend.device_address(handle) if isinstance(backend, SupportsDeviceAddress) else None


def device_of(tensor: Tensor) -> tuple[int, int]:
    """Return the place that `Tensor.__dlpack_device__` reports: the device if other libraries order their work with its."""
    foreign = tensor.device.foreign
    return _HOST_PLACE if foreign is None or tensor.dtype.is_complex else foreign.space


def capsule_of(tensor: Tensor, options: dict[str, Any]) -> Any:
    """Return the capsule of `Tensor.__dlpack__` for the keyword arguments of the consumer.

    Raises BufferError for a copy of bfloat16 in the host's memory, which NumPy cannot export, and with `copy=False` if a copy
    is needed.
    """
    place = options.get("dl_device")
    here = device_of(tensor)
    # Consumers of memory of a device pass their stream, and those of the host's memory, such as NumPy, do not.
    if here != _HOST_PLACE and ("stream" in options if place is None else tuple(place) == here):
        return _device_capsule(tensor, options)
    if here != _HOST_PLACE:
        options.pop("stream", None)  # the copy to the host is complete
    return _host_capsule(tensor, options)


def _device_capsule(tensor: Tensor, options: dict[str, Any]) -> Any:
    dispatch.require_execution("dlpack", "the elements are only being recorded")
    copy = options.pop("copy", None)
    export = DeviceExport(FUNCTIONS["copy"](tensor.detach()) if copy else tensor)
    if export.copied and copy is False:
        raise BufferError(_takes_a_copy(tensor))
    export.copied |= bool(copy)
    return export.__dlpack__(**options)


def _host_capsule(tensor: Tensor, options: dict[str, Any]) -> Any:
    copy = options.get("copy")
    executes = dispatch.thread.executor.replays_graphs  # what is being recorded has no memory
    if executes and not copy and not tensor.dtype.is_complex and tensor.size:
        place = _address(tensor.device, tensor.ref.handle)
        if place is not None and place.kind == HOST:
            export = DeviceExport(tensor)
            if export.copied and copy is False:
                raise BufferError(_takes_a_copy(tensor))
            return export.__dlpack__(**options)
    if copy is False:
        raise BufferError(_takes_a_copy(tensor))
    return tensor.numpy().__dlpack__(**options)


def _takes_a_copy(tensor: Tensor) -> str:
    return message("dlpack", "this takes a copy", fix="leave copy=False out", device=tensor.device)


def cuda_array_interface(tensor: Tensor) -> dict[str, Any]:
    """Return the dictionary of `Tensor.__cuda_array_interface__`. Raises AttributeError for tensors that have none."""
    foreign = tensor.device.foreign
    if foreign is None or not dispatch.thread.executor.replays_graphs:
        raise AttributeError(f"a tensor of {tensor.device} has no __cuda_array_interface__: it is not in CUDA memory")
    dtype, ref = tensor.dtype, tensor.ref
    if dtype is dtypes.bfloat16 or dtype.is_complex:
        raise AttributeError(_NO_TYPE_STRINGS.format(dtype.name))
    place = _place(tensor)
    start = place.address + ref.offset * dtype.itemsize if place is not None and tensor.size else 0
    foreign.lend(tensor.buffer)
    return {
        "shape": ref.shape,
        "typestr": dtype.numpy.str,
        "data": (start, False),
        "strides": None if ref.is_contiguous else tuple(n * dtype.itemsize for n in ref.strides),
        "stream": foreign.driver.stream_number(),
        "version": 3,
    }
