"""The described devices of all backends, under one name: `described:rx6800`, `described:rx6800-vulkan`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from polyhal.backends.common.described.catalogue import unknown
from polyhal.hal.capabilities import DeviceInfo

_FAMILIES = ("polyhal.backends.opencl.described.family", "polyhal.backends.wgpu.described.family")
"""Modules with `known`, `probe` and `create`, imported when a described device is requested."""


def probe() -> Sequence[DeviceInfo]:
    """Return all described devices."""
    return [info for family in _families() for info in family.probe()]


def create(selector: str) -> Any:
    """Open a described device by name, with an optional option of its backend after a comma.

    Raises DeviceUnavailableError, which lists all names, for an unknown name.
    """
    for family in _families():
        if selector.partition(",")[0] in family.known():
            return family.create(selector)
    raise unknown(selector, [name for family in _families() for name in family.known()])


def _families() -> Iterator[Any]:
    return (importlib.import_module(name) for name in _FAMILIES)
