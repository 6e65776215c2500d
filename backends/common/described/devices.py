"""The described devices of all backends, under one name: `described:rx6800`, `described:rx6800-vulkan`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from polyhal.backends.common.described.description import find, known
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.hardware.card_schema import DRIVER_APIS
from polyhal.hal.errors import DeviceUnavailableError, message

_OPENCL, _WGPU = "polyhal.backends.opencl.described", "polyhal.backends.wgpu.described"
"""Packages with the modules `description` and `backend`, imported when a described device is requested."""


def probe() -> Sequence[DeviceInfo]:
    """Return all described devices."""
    return [_module(key, "description").load(key).info for key in known(*DRIVER_APIS)]


def create(selector: str) -> Any:
    """Open a described device by its selector, with an optional option of its backend after a comma.

    Raises ValueError for an unknown selector or option, and DeviceUnavailableError if a package of the backend is missing.
    """
    key, _, option = selector.partition(",")
    described = _module(key, "description").load(key)
    try:
        backend = _module(key, "backend")
    except ImportError as error:
        raise DeviceUnavailableError(message(None, str(error), fix='pip install "polyhal[wgpu]"')) from error
    return backend.create(described, option)


def _module(key: str, name: str) -> Any:
    return importlib.import_module(f"{_OPENCL if find(key).api == 'opencl' else _WGPU}.{name}")
