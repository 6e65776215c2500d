"""Data of other libraries on their way into tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.numpy_protocols import NumPyProtocols

if TYPE_CHECKING:
    from polyhal.hal.device import Device


def arrived(data: Any, device: Device | str | None, copy: bool | None = None) -> Any:
    """Return a tensor of an array of another library in CUDA memory, in its memory unless `copy`; other data as they are."""
    if isinstance(data, NumPyProtocols) or not hasattr(data, "__cuda_array_interface__"):
        return data
    from polyhal.tensor.foreign_arrays import imported

    return imported(data, device, copy)
