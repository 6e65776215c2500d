"""The device and its properties. PyTorch supports a single device per backend written in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from polyhal.hal.dtypes import bfloat16
from polyhal.torch.device import NAME, current

if TYPE_CHECKING:
    from polyhal.torch.call_types import DeviceName

__all__ = [
    "DeviceProperties",
    "_initialized",
    "_is_in_bad_fork",
    "_lazy_init",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "set_device",
    "synchronize",
]


def check_index(device: DeviceName | None = None) -> int:
    """Return the index of the device that an argument names: 0. Raises ValueError for other indices."""
    where = torch.device(device) if isinstance(device, str) else device
    if isinstance(where, torch.device):
        if where.type != NAME:
            raise ValueError(f"expected a {NAME} device and got {where}")
        where = where.index
    if where not in (None, -1, 0):
        raise ValueError(f"device {where}: PyTorch supports one Polyhal device, {NAME}:0. POLYHAL_DEVICE selects it")
    return 0


class device:  # noqa: N801 - as PyTorch spells it
    """`with torch.polyhal.device(0):`. No-op: there is one device. Raises ValueError for another."""

    def __init__(self, device: int | None = None) -> None:
        self.idx = check_index(device)

    def __enter__(self) -> device:
        return self

    def __exit__(self, *error: object) -> None:
        """No-op: the device was not changed."""


class device_of(device):  # noqa: N801 - as PyTorch spells it
    """`with torch.polyhal.device_of(tensor):`. No-op: there is one device."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(0)


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """Result of `get_device_properties`."""

    name: str
    """Name of the device in its driver."""
    total_memory: int
    """Size of the device's memory in bytes."""
    type: str
    """Kind of hardware: gpu, integrated_gpu, accelerator or cpu."""
    vendor: str
    driver: str
    polyhal_name: str
    """Polyhal's name of the device, as in POLYHAL_DEVICE: `opencl:0`."""


def is_available() -> bool:
    """Return True: every machine has at least the NumPy device."""
    return True


def is_initialized() -> bool:
    """Return True: the kernels are registered. The first tensor opens the device itself."""
    return True


def init() -> None:
    """No-op: the kernels are registered, and the first tensor opens the device."""


_lazy_init = init
_initialized = True
"""Flag that checkpoints read before they save the state of random numbers."""


def _is_in_bad_fork() -> bool:
    """Return False: seeds may be set in any process. Tensors of a device that was opened before a fork raise another error."""
    return False


def device_count() -> int:
    """Return 1: PyTorch supports a single device per backend written in Python."""
    return 1


def current_device() -> int:
    """Return 0: PyTorch supports a single device per backend written in Python."""
    return 0


def set_device(device: DeviceName) -> None:
    """No-op for the only device. Raises ValueError for another."""
    check_index(device)


def synchronize(device: DeviceName | None = None) -> None:
    """Wait until all work is done. Raises RuntimeError for work that failed."""
    check_index(device)
    current().synchronize()


def get_device_name(device: DeviceName | None = None) -> str:
    """Return the name of the device in its driver."""
    check_index(device)
    return current().info.name


def get_device_properties(device: DeviceName | None = None) -> DeviceProperties:
    """Return name, memory, kind and driver of the device."""
    check_index(device)
    info = current().info
    return DeviceProperties(info.name, info.memory, str(info.type), info.vendor, info.driver, current().name)


def get_device_capability(device: DeviceName | None = None) -> Any:
    """Raise RuntimeError: only CUDA devices have a compute capability."""
    raise RuntimeError(
        f"{NAME} devices have no compute capability, which is a version of CUDA's devices. "
        f"torch.{NAME}.get_device_properties() says what the device is"
    )


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the device stores bfloat16; without emulation, whether it also computes in bfloat16 without casts."""
    capabilities = current().capabilities
    return bfloat16 in (capabilities.storage if including_emulation else capabilities.compute)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes of autocast."""
    return [torch.float16, torch.bfloat16]
