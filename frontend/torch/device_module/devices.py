"""Which device there is, and what it is. PyTorch's interface for devices written in Python knows one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from polyhal.hal.dtypes import bfloat16
from polyhal.torch.device import NAME, current

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


def check_index(device: Any = None) -> int:
    """The number of the device that an argument names: 0. Raises ValueError for others, as there is one."""
    where = torch.device(device) if isinstance(device, str) else device
    if isinstance(where, torch.device):
        if where.type != NAME:
            raise ValueError(f"expected a {NAME} device and got {where}")
        where = where.index
    if where not in (None, -1, 0):
        raise ValueError(
            f"device {where}: PyTorch knows one device of Polyhal, {NAME}:0. POLYHAL_DEVICE chooses which it is"
        )
    return 0


class device:  # noqa: N801 - as PyTorch spells it
    """`with torch.polyhal.device(0):`. There is one device, so nothing changes. Raises ValueError for another."""

    def __init__(self, device: Any = None) -> None:
        self.idx = check_index(device)

    def __enter__(self) -> device:
        return self

    def __exit__(self, *error: object) -> None:
        """There is nothing to go back to."""


class device_of(device):  # noqa: N801 - as PyTorch spells it
    """`with torch.polyhal.device_of(tensor):`. Nothing changes here, either."""

    def __init__(self, obj: Any) -> None:
        super().__init__(0)


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What `get_device_properties` says."""

    name: str
    """The name that the driver gives the device."""
    total_memory: int
    """Bytes."""
    type: str
    """The kind of hardware: gpu, integrated_gpu, accelerator or cpu."""
    vendor: str
    driver: str
    polyhal_name: str
    """Polyhal's name of the device, as in POLYHAL_DEVICE: opencl:0."""


def is_available() -> bool:
    """True: every machine has at least the NumPy device."""
    return True


def is_initialized() -> bool:
    """True: the kernels are there. The device itself is opened by the first tensor."""
    return True


def init() -> None:
    """Nothing is left to be done."""


_lazy_init = init
_initialized = True
"""What checkpoints ask before they keep the state of random numbers."""


def _is_in_bad_fork() -> bool:
    """False: seeds may be set in any process. Tensors of a device that was opened before a fork raise an error of their own."""
    return False


def device_count() -> int:
    """1: PyTorch's interface for devices written in Python knows one."""
    return 1


def current_device() -> int:
    """0: PyTorch's interface for devices written in Python knows one device."""
    return 0


def set_device(device: Any) -> None:
    """Do nothing. Raises ValueError for any device but the first."""
    check_index(device)


def synchronize(device: Any = None) -> None:
    """Wait until all work is done. Raises RuntimeError for work that failed."""
    check_index(device)
    current().synchronize()


def get_device_name(device: Any = None) -> str:
    """The name that the driver gives the device."""
    check_index(device)
    return current().info.name


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, memory, kind and driver of the device."""
    check_index(device)
    info = current().info
    return DeviceProperties(info.name, info.memory, str(info.type), info.vendor, info.driver, current().name)


def get_device_capability(device: Any = None) -> Any:
    """Raise RuntimeError: only CUDA has versions of that kind."""
    raise RuntimeError(
        f"{NAME} devices have no compute capability, which is a version of CUDA's devices. "
        f"torch.{NAME}.get_device_properties() says what the device is"
    )


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device can hold bfloat16; without emulation, whether it also computes in it without casts."""
    capabilities = current().capabilities
    return bfloat16 in (capabilities.storage if including_emulation else capabilities.compute)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes of autocast."""
    return [torch.float16, torch.bfloat16]
