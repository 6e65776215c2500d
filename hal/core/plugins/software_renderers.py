"""Graphics devices that run on the processor, regardless of the hardware type that they report."""

from __future__ import annotations

_NAMES = ("llvmpipe", "lavapipe", "softpipe", "swiftshader", "basic render", "software adapter")
"""Substrings of their names, in lower case: Mesa, Chromium, Windows."""


def is_software_renderer(name: str) -> bool:
    """Return whether a device name belongs to a software renderer."""
    return any(part in name.lower() for part in _NAMES)
