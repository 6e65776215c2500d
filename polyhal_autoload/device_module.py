"""The module `torch.polyhal` before the device is used."""

from __future__ import annotations

import types
from typing import Any

NAME = "polyhal"
"""PyTorch's name of the device."""


class DeviceModule(types.ModuleType):
    """`torch.polyhal`. It answers PyTorch's queries of every device; `polyhal.torch` brings the other names.

    Methods are for the time before: `polyhal.torch` puts functions of the same names in their place.
    """

    def __init__(self) -> None:
        super().__init__(f"torch.{NAME}", "Polyhal's device.")
        self.pending_seed: int | None = None
        self.library: Any = None
        """Kernels for tensors of other devices. They hold as long as this object lives."""

    def is_available(self) -> bool:
        """True: every machine has at least the NumPy device."""
        return True

    def is_initialized(self) -> bool:
        """Return whether the device was used."""
        return False

    def device_count(self) -> int:
        """1: PyTorch's interface for devices written in Python knows one."""
        return 1

    def current_device(self) -> int:
        """0: PyTorch's interface for devices written in Python knows one device."""
        return 0

    def _lazy_init(self) -> None:
        """Called by PyTorch before the first tensor. Raises ImportError for a version that is too old."""
        import polyhal.torch  # noqa: F401

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Keep the seed until the device is used."""
        self.pending_seed = seed

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            self._lazy_init()
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"module 'torch.{NAME}' has no attribute {name!r}")
