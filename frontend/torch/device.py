"""The device behind PyTorch's: the default one, or the one that POLYHAL_DEVICE names; and the module `torch.polyhal`."""

from __future__ import annotations

import types
from typing import Any

import torch

from polyhal import random
from polyhal.hal.device import Device

NAME = "polyhal"
"""PyTorch's name of the device."""


def current() -> Device:
    """The Polyhal device that `torch.device("polyhal")` stands for."""
    return Device.default()


class DeviceScope:
    """`with torch.polyhal.device(0):`. There is one device, so nothing changes."""

    def __init__(self, index: Any = 0) -> None:
        self.idx = index

    def __enter__(self) -> DeviceScope:
        return self

    def __exit__(self, *error: object) -> None:
        """There is nothing to go back to."""


class DeviceModule(types.ModuleType):
    """`torch.polyhal`, with what PyTorch asks of the module of an accelerator."""

    device = DeviceScope

    def __init__(self) -> None:
        super().__init__(f"torch.{NAME}", "Polyhal's device.")

    def is_available(self) -> bool:
        """True: every machine has at least the NumPy device."""
        return True

    def is_initialized(self) -> bool:
        """True: the device is opened by the first tensor."""
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def _lazy_init(self) -> None:
        """The device is opened by the first tensor."""

    def current_device(self) -> int:
        """0: PyTorch's hooks in Python know one device."""
        return 0

    def device_count(self) -> int:
        """1: PyTorch's hooks in Python know one device."""
        return 1

    def set_device(self, device: Any) -> None:
        """Raise ValueError for any device but the first."""
        index = device if isinstance(device, int) else torch.device(device).index
        if index not in (None, 0):
            raise ValueError(f"device {index}; PyTorch knows one device of Polyhal, 0. POLYHAL_DEVICE chooses another")

    def synchronize(self, device: Any = None) -> None:
        """Wait until all work is done."""
        current().synchronize()

    def get_device_name(self, device: Any = None) -> str:
        """The name that the driver gives the device."""
        return current().info.name

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """The dtypes of autocast."""
        return [torch.float16, torch.bfloat16]

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in use."""
        return current().memory_stats().used

    def max_memory_allocated(self, device: Any = None) -> int:
        """The most bytes that were in use."""
        return current().memory_stats().peak

    def empty_cache(self) -> None:
        """Give unused memory back to the driver."""
        current().empty_cache()

    def manual_seed(self, seed: int) -> None:
        """Restart the random numbers of the device."""
        random.manual_seed(int(seed) & (2**63 - 1))

    manual_seed_all = manual_seed

    def get_rng_state(self, device: Any = NAME) -> torch.Tensor:
        """Seed and offset of the random numbers, as 16 bytes."""
        state = random.default_generator.get_state()
        return torch.tensor([state["seed"], state["offset"]], dtype=torch.int64).view(torch.uint8)

    def set_rng_state(self, new_state: torch.Tensor, device: Any = NAME) -> None:
        """Go back to what `get_rng_state` gave."""
        seed, offset = new_state.view(torch.int64).tolist()
        random.default_generator.set_state({"seed": seed, "offset": offset})
