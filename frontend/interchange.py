"""Functions on tensors as objects rather than elements: copies, capsules for other libraries, comparisons of shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.core.memory.imports import import_memory
from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, extent
from polyhal.hal.ops.top_level import top_level
from polyhal.tensor import Tensor, wrap


@top_level
def to_dlpack(tensor: Tensor, *, device: bool = False) -> Any:
    """Return a capsule with a copy of the elements in host memory, which one library can take over.

    Libraries take tensors directly, too: `numpy.from_dlpack(x)`, and `torch.from_dlpack(x)`, which shares the memory of CUDA
    devices. With `device=True` the result is an object for `from_dlpack`
    of another library over memory of the tensor's device, `torch.from_dlpack(to_dlpack(x, device=True))`: the tensor's own if
    the driver provides an address that others can use, as CUDA does, else a copy on the device.

    Raises BufferError for bfloat16 in host memory, which NumPy cannot export, and if the device has no such memory.
    """
    if device:
        from polyhal.tensor.device_export import DeviceExport

        return DeviceExport(tensor)
    return tensor.__dlpack__()


@top_level
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same shape."""
    return input.shape == other.shape


def shared(array: np.ndarray, device: Device) -> Tensor | None:
    """Return a tensor in the memory of an array; None if the array cannot be written, or the device works in other memory.

    Raises TypeError and UnsupportedDTypeError for dtypes that there are none of.
    """
    dtype = as_dtype(array.dtype)
    size = dtype.itemsize
    address: int = array.__array_interface__["data"][0]
    if not array.flags.writeable or dtype in device.stand_ins or dtype.kind == "complex":
        return None
    if any(n % size for n in (address, *array.strides)):
        return None
    device.check_dtype(dtype)
    strides = tuple(n // size for n in array.strides)
    low, high = extent(array.shape, strides)
    buffer = import_memory(device, address + low * size, (high - low + 1) * size, array)
    if buffer is None:
        return None
    offset = buffer.start // size - low
    return wrap(device, buffer, Ref(buffer.handle, Spec(dtype, array.shape, strides, offset % ALIGNMENT == 0), offset))
