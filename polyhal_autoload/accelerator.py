"""The device as `torch.accelerator`. PyTorch asks accelerators in C++; answers that it cannot query from Python are put
here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polyhal_autoload.device_module import NAME, DeviceModule
from polyhal_autoload.pending_errors import set_aside, with_errors

_new_library: Callable[..., Any] = torch.library.Library


def install(module: DeviceModule) -> None:
    """Register hooks and a guard, and answer for devices without either. Versions before 2.10 have no such hooks."""
    acc = getattr(torch._C, "_acc", None)
    if acc is None:
        return

    class AcceleratorHooks(acc.PrivateUse1Hooks):  # type: ignore[name-defined,misc]
        def is_available(self) -> bool:
            return True

        def has_primary_context(self, device_index: int) -> bool:
            return True

        def is_built(self) -> bool:
            return True

    kind = torch._C._autograd.DeviceType.PrivateUse1

    class AcceleratorGuard(acc.DeviceGuard):  # type: ignore[name-defined,misc]
        def type_(self) -> Any:
            set_aside()
            return kind

    acc.register_python_privateuseone_hook(AcceleratorHooks())
    acc.register_python_privateuseone_device_guard(AcceleratorGuard())
    autograd: Any = torch.autograd
    autograd._engine_run_backward = with_errors(autograd._engine_run_backward)
    for name, function in _answers(module).items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
    module.library = _new_library("aten", "IMPL")
    module.library.impl("_pin_memory", _pin_memory, "CPU")


def _answers(module: DeviceModule) -> dict[str, Callable[..., Any]]:
    """Functions below `torch.accelerator` that PyTorch cannot answer for a device without C++, or ends the process in."""
    return {
        "_accelerator_synchronizeDevice": lambda index: module.synchronize(index),
        "_accelerator_emptyCache": lambda: module.empty_cache(),
        "_accelerator_emptyHostCache": lambda: None,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_getDeviceStats": lambda index: module.memory_stats(index),
        "_accelerator_getMemoryInfo": lambda index: module.mem_get_info(index),
        "_accelerator_resetPeakStats": lambda index: module.reset_peak_memory_stats(index),
        "_accelerator_resetAccumulatedStats": lambda index: module.reset_accumulated_memory_stats(index),
        "_accelerator_getDeviceCapability": lambda index: module.get_device_capability(index),
    }


def _pin_memory(x: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """The tensor itself: Polyhal copies through pinned memory of its own. Raises RuntimeError for another device."""
    if device is not None and device.type != NAME:
        raise RuntimeError(f"memory is pinned for the current accelerator, {NAME}, and not for {device}")
    return x
