"""The workarounds for graphics drivers under wgpu: the only file of this backend with conditions on driver names.

To add one, declare a field here and read it as `features.quirks.NAME` (see docs/quirks.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from polyhal.backends.common.quirks import DriverId, match_quirks, quirk


def _llvmpipe(driver: DriverId) -> bool:
    """Match Mesa's software renderer."""
    return "llvmpipe" in driver.device.lower()


def _llvmpipe_lanes(driver: DriverId) -> int:
    """Return the vector lanes from the device's name: `(LLVM 15.0.6, 256 bits)` has eight lanes of 32 bits."""
    bits = re.search(r"llvmpipe.* (\d+) bits", driver.device)
    return int(bits[1]) // 32 if bits else 0


@dataclass(frozen=True, slots=True)
class WGPUQuirks:
    """The workarounds for one driver. All are off by default."""

    loop_limit: int = quirk(
        lambda d: 65535 if _llvmpipe(d) else 0,
        reason="a loop ends without an error after 65535 iterations, counting iterations of inner loops",
        evidence="Mesa 22.3: sums over longer rows are too small",
        link="https://gitlab.freedesktop.org/mesa/mesa/-/blob/main/src/gallium/auxiliary/gallivm/lp_bld_limits.h",
    )
    fixed_subgroup_size: int = quirk(
        _llvmpipe_lanes,
        reason="wgpu-native reports no subgroup sizes, and the subgroup size is the processor's vector width",
        evidence="Mesa 22.3: the device's name contains the width in bits",
        link="https://docs.mesa3d.org/drivers/llvmpipe.html",
    )
    long_shaders: bool = quirk(
        lambda d: "swiftshader" in d.device.lower(),
        reason="fused attention takes the driver's compiler minutes; the steps of attention are launched one by one",
        evidence="SwiftShader in Chromium 156: attention is not compiled within 180 s, and the page loses its device",
    )


def match(api: str, driver: str, device: str, *, cpu: bool) -> WGPUQuirks:
    """Return the workarounds for a driver, given the graphics API, the driver's version and the name of the device."""
    return match_quirks(WGPUQuirks, DriverId(api, driver, device, cpu))
