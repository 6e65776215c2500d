"""Adapters that wgpu lists but that this backend leaves out, because they lack 64-bit integers, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from polyhal.hal.capabilities import UnusableDevice

INTEGERS = "shader-int64"
_FIXES = {
    "Vulkan": "update the driver: it may offer shaderInt64 in a newer version",
    "D3D12": "install a Vulkan driver, or dxcompiler.dll and dxil.dll, which compile 64-bit integers",
    "Metal": "update macOS",
}
_OTHER_FIX = "install the Vulkan driver of the vendor"
_SUFFIXES = re.compile(r" \(.*|/.*")
"""What drivers add to the name of a card: their own name, that of the bus."""


def without_integers(name: str, apis: Sequence[str]) -> UnusableDevice:
    """Return the record of a device that has no 64-bit integers through any of the APIs that offer it."""
    fix = next((_FIXES[api] for api in apis if api in _FIXES), _OTHER_FIX)
    reason = f"it has no 64-bit integers, which indices need, through {' or '.join(dict.fromkeys(apis))}"
    return UnusableDevice(name, reason, f'{fix}; Device("wgpu:{name}") opens it all the same, for work in 32 bits')


def is_same_card(name: str, other: str) -> bool:
    """Return whether two names are those of one card through different APIs: OpenGL tells no ids of hardware."""
    first, second = (_SUFFIXES.sub("", n).lower() for n in (name, other))
    return first in second or second in first
