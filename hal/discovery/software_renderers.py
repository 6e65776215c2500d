"""Devices that draw and compute on the processor, whatever type of hardware they claim to be."""

from __future__ import annotations

_NAMES = ("llvmpipe", "lavapipe", "softpipe", "swiftshader", "basic render", "software adapter")
"""Parts of their names, in lower case: Mesa, Chromium, Windows."""


def is_software_renderer(name: str) -> bool:
    """Return whether the name of a device is that of a software renderer."""
    return any(part in name.lower() for part in _NAMES)
