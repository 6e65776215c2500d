"""Which devices the tests run on."""

from __future__ import annotations

import os
from collections.abc import Sequence

from polyhal.hal.system.discovery.registry import registry

NUMPY = ("numpy", "numpy:contiguous_only", "numpy:no_f64")
"""The plain NumPy device, one with the required members only, one without float64."""


def listed(variable: str) -> list[str]:
    """The comma-separated names in an environment variable."""
    return [n.strip() for n in os.environ.get(variable, "").split(",") if n.strip()]


TEST_DEVICES = listed("POLYHAL_TEST_DEVICES") or [*NUMPY, *(["opencl"] if registry().probe("opencl") else [])]
"""POLYHAL_TEST_DEVICES, or else the NumPy devices and the best OpenCL device, if there is one."""
KIT_DEVICES = listed("POLYHAL_KIT_DEVICES") or TEST_DEVICES[:1]
"""Devices that the tests run the conformance kit on. `make conformance DEVICE=...` runs it on any other one."""
PARITY_DEVICES = [*TEST_DEVICES, *(["wgpu"] if "wgpu" not in TEST_DEVICES and registry().probe("wgpu") else [])]
"""Devices that must train equally: also a second GPU API if available."""


def first_of(backend: str) -> str | None:
    """The first of the devices under test that is of a backend, with all of its members; None if there is none."""
    return next((name for name in TEST_DEVICES if name == backend or name.startswith(f"{backend}:")), None)


def shares(devices: Sequence[str]) -> list[int]:
    """How many of the cases that take turns each device gets: half with the required members only, where most ops are composed
    of several and take many times as long."""
    return [1 if d == "numpy:contiguous_only" else 2 for d in devices]
