"""The device's process groups: `torch.distributed.init_process_group("polyhal")`."""

from __future__ import annotations

from typing import Any

from torch import distributed

from polyhal_autoload.device_module import NAME


def install() -> None:
    """Register the backend, for groups without a named one, too. No-op if PyTorch was built without `distributed`."""
    if distributed.is_available():
        distributed.Backend.register_backend(NAME, _connect, devices=[NAME, "cpu"])


def _connect(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from polyhal.torch.distributed import connect

    return connect(store, rank, size, timeout)
