"""CPU tensors as arguments and results of programs: zero-copy on devices that share host memory, else by copies.

Imports and uploads are cached on the tensor's storage, whose Python object lives as long as the memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from polyhal.hal.core.memory.imports import ImportedBuffer, import_memory
from polyhal.hal.device import Device
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous
from polyhal.hal.peer_memory import SupportsDeviceAddress
from polyhal.tensor import Tensor, wrap
from polyhal.tensor.device_export import HOST
from polyhal.torch import private, tensors
from polyhal.torch.device import NAME

_CPU = torch.device("cpu")


class _Import(NamedTuple):
    """The memory of a storage, imported as a device buffer."""

    address: int
    nbytes: int
    device: Device
    buffer: ImportedBuffer


class _Upload(NamedTuple):
    """Copy of a storage on a device, with the version of its contents."""

    address: int
    nbytes: int
    version: int
    device: Device
    whole: Tensor


class HostTensors:
    """Transfers between CPU tensors and one device for the calls of one program."""

    def __init__(self, device: Device) -> None:
        self._device = device
        backend = device.backend
        self._addresses = backend if device.imports is not None and isinstance(backend, SupportsDeviceAddress) else None
        self._is_shared = False
        """True if this call used memory shared with PyTorch."""

    def spec(self, x: torch.Tensor) -> Spec:
        """Return the layout with which an argument is recorded."""
        ref = self.given(x).ref
        # PyTorch aligns storages to 64 bytes, which is too little for vectors of 16 wide elements.
        wide = x.device.type != NAME and x.element_size() * ALIGNMENT > 64
        return ref.spec._replace(aligned=False) if wide else ref.spec

    def given(self, x: torch.Tensor) -> Tensor:
        """Return an argument on the device. Raises RuntimeError for tensors of other devices."""
        if x.device.type == NAME:
            found: Tensor = tensors.unwrap(x)
            if found.device is not self._device:
                raise RuntimeError(
                    f"a graph that was compiled for {self._device} is called with a tensor on {found.device}"
                )
            return found
        if x.device.type != "cpu":
            raise RuntimeError(f"Expected tensors on the CPU or on {NAME}, but found one on {x.device}")
        if not x.numel():
            return self._uploaded(x)
        buffer = self._import(x)
        if buffer is None:
            return self._kept_upload(x)
        self._is_shared = True
        kind = tensors.dtype_of(x.dtype)
        offset: Any = x.storage_offset() + buffer.start // kind.itemsize
        spec = Spec(kind, tuple(x.shape), x.stride(), offset % ALIGNMENT == 0)
        return wrap(self._device, buffer, Ref(buffer.handle, spec, offset))

    def write_back(self, x: torch.Tensor, given: Tensor) -> None:
        """Copy the elements that the program wrote from the device tensor `given` back to the argument."""
        if x.device.type == NAME:
            if given.buffer is not tensors.root_of(x).buffer:
                tensors.write(x, given)
        elif not isinstance(given.buffer, ImportedBuffer):
            x.copy_(tensors.download(given))

    def returned(self, x: Tensor) -> torch.Tensor:
        """Return a result on the CPU, without a copy if its memory is host memory."""
        ref = x.ref
        place = self._addresses.device_address(ref.handle) if self._addresses is not None and x.size else None
        if place is None or place.kind != HOST:
            return self._downloaded(x)
        self._is_shared = True
        storage = private.new_storage(_CPU, x.buffer.nbytes, place.address)
        storage.polyhal_memory = x.buffer
        out = torch.empty(0, dtype=tensors.TORCH_DTYPES[x.dtype])
        return out.set_(storage, ref.offset, ref.shape, ref.strides)

    def finish(self) -> None:
        """End a call: wait until PyTorch may read or free shared memory."""
        if self._is_shared:
            self._is_shared = False
            self._device.synchronize()

    def _import(self, x: torch.Tensor) -> ImportedBuffer | None:
        if self._device.imports is None:
            return None
        storage: Any = x.untyped_storage()
        address, nbytes = storage.data_ptr(), storage.nbytes()
        known = getattr(storage, "polyhal_import", None)
        if known is not None and known[:3] == (address, nbytes, self._device):
            return known.buffer  # type: ignore[no-any-return]
        if address % x.element_size():
            return None
        # The storage owns the buffer, which does not own the storage: `finish` waits for its uses before the call returns.
        buffer = import_memory(self._device, address, nbytes, None)
        if buffer is not None:
            storage.polyhal_import = _Import(address, nbytes, self._device, buffer)
        return buffer

    def _kept_upload(self, x: torch.Tensor) -> Tensor:
        """Return a copy of an argument. Copies of parameters are cached until the parameter changes."""
        storage: Any = x.untyped_storage()
        address, nbytes = storage.data_ptr(), storage.nbytes()
        key = (address, nbytes, x._version, self._device)
        known = getattr(storage, "polyhal_upload", None)
        if known is None or known[:4] != key:
            if known is None and not isinstance(x, torch.nn.Parameter):
                return self._uploaded(x)
            flat = torch.empty(0, dtype=x.dtype).set_(storage)
            known = storage.polyhal_upload = _Upload(*key, tensors.upload_to(flat, self._device))
        offset: Any = x.storage_offset()
        spec = Spec(known.whole.dtype, tuple(x.shape), x.stride(), offset % ALIGNMENT == 0)
        return wrap(self._device, known.whole.buffer, Ref(known.whole.ref.handle, spec, offset))

    def _uploaded(self, x: torch.Tensor) -> Tensor:
        """Copy an argument with its order of axes, so that it has the layout that the graph was recorded with."""
        strides = x.stride()
        order = sorted(range(x.ndim), key=lambda i: -strides[i])
        ordered = x.permute(order)
        if x.is_contiguous() or not ordered.is_contiguous():
            return tensors.upload_to(x, self._device)
        flat = tensors.upload_to(ordered, self._device)
        spec = Spec(flat.dtype, tuple(x.shape), strides)
        return wrap(self._device, flat.buffer, Ref(flat.ref.handle, spec, 0))

    def _downloaded(self, x: Tensor) -> torch.Tensor:
        shape, strides = x.shape, x.ref.strides
        order = sorted(range(x.ndim), key=lambda i: (-strides[i], i))
        dense = contiguous(x.dtype, tuple(shape[i] for i in order))
        flat = wrap(
            x.device,
            x.buffer,
            Ref(x.ref.handle, dense._replace(strides=tuple(strides[i] for i in order)), x.ref.offset),
        )
        return tensors.download(flat).permute(sorted(range(x.ndim), key=order.__getitem__))
