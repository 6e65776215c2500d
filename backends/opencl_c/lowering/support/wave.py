"""Work-group sizes that fill a device's waves (warps, subgroups), in which idle work-items cost as much as busy ones."""

from __future__ import annotations

from polyhal.backends.opencl_c.features import KernelFeatures

_USUAL = 32
"""Work-items of a wave on most devices. Default group sizes are chosen for it."""


def filled(features: KernelFeatures, group: int) -> int:
    """Return `group`, or a whole wave on devices with wider waves than most."""
    return max(group, features.wave) if features.wave > _USUAL else group
