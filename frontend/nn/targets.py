"""Arguments of `Module.to`: a device, a dtype, or both."""

from __future__ import annotations

from polyhal.conversion import names_dtype
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.tensor import Tensor


def device_and_dtype(targets: tuple[object, ...]) -> tuple[Device | None, DType | None]:
    """Return the device and the dtype among `targets`. Raises TypeError for integer dtypes."""
    device: Device | None = None
    dtype: DType | None = None
    for target in targets:
        if isinstance(target, Device) or (isinstance(target, str) and not names_dtype(target)):
            device = Device(target)
            continue
        if isinstance(target, Tensor):
            device, dtype = target.device, target.dtype if target.dtype.is_floating_point else dtype
            continue
        kind = as_dtype(target)
        if kind.is_floating_point:
            dtype = kind
        else:
            raise TypeError(f"a module cannot be cast to {kind.name}; expected a floating-point dtype")
    return device, dtype
