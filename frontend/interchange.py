"""Functions on tensors as objects rather than elements: copies, capsules for other libraries, comparisons of shapes."""

from __future__ import annotations

from typing import Any

from polyhal.tensor import Tensor


def to_dlpack(tensor: Tensor, *, device: bool = False) -> Any:
    """Return a capsule with a copy of the elements in host memory, which one library can take over.

    Libraries take tensors directly, too: `numpy.from_dlpack(x)`. With `device=True` the result is an object for `from_dlpack`
    of another library over memory of the tensor's device, `torch.from_dlpack(to_dlpack(x, device=True))`: the tensor's own if
    the driver gives it an address that others know, as CUDA does, else a copy on the device.

    Raises BufferError for bfloat16 in host memory, which NumPy cannot export, and if the device has no such memory.
    """
    if device:
        from polyhal.device_export import DeviceExport

        return DeviceExport(tensor)
    return tensor.__dlpack__()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape
