"""The part of Polyhal that `import torch` loads: the name of the device. `polyhal.torch` follows when a program uses it.

PyTorch calls `register` for the entry point of the group `torch.backends`. This package is next to `polyhal`, not in it:
those who do not use the device shall not wait for the rest.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import torch
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

from polyhal_autoload import accelerator, process_groups
from polyhal_autoload.device_module import NAME, DeviceModule
from polyhal_autoload.files import deserialize, location

UNNAMED = "privateuseone"
"""PyTorch's name of the one device type that packages may take, while none has."""


def owner() -> str:
    """The name that the device type of packages has now, `privateuseone` if none."""
    return str(torch._C._get_privateuse1_backend_name())


def name_device() -> DeviceModule:
    """Give the device its name and its module, once. Raises ImportError if another package has named the device type."""
    module = getattr(torch, NAME, None)
    if isinstance(module, DeviceModule):
        return module
    if owner() not in (UNNAMED, NAME):
        raise ImportError(
            f"PyTorch has one device type for packages, and it is taken by {owner()!r}; if you do not need that, uninstall "
            "its package or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        )
    rename_privateuse1_backend(NAME)
    module = DeviceModule()
    torch._register_device_module(NAME, module)  # type: ignore[no-untyped-call]
    generate_methods_for_privateuse1_backend()
    torch.serialization.register_package(19, location, deserialize)  # before PyTorch's own, 23, which needs C++
    accelerator.install(module)
    process_groups.install()
    return module


def has_accelerator() -> bool:
    """Return whether PyTorch has an accelerator of its own here. It would no longer find it: packages' devices go first."""
    return bool(torch.cuda.device_count() or torch.xpu.device_count() or torch.backends.mps.is_available())


def register() -> None:
    """Name the device, unless PyTorch has an accelerator of its own or another package has or wants the device type."""
    others = [point for point in entry_points(group="torch.backends") if point.name != NAME]
    if not others and owner() in (UNNAMED, NAME) and not has_accelerator():
        name_device()
