"""The next step on a machine without a fast device: one command, which depends on the system and on installed packages."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.plugins.probing import Candidate, hardware_type

PROCESSOR_DRIVER = 'pip install "polyhal[cpu]"'
"""Command that installs Intel's OpenCL runtime, the fastest device of any x86-64 processor, on Linux and Windows."""
_REFERENCE = "numpy"


def next_step(candidates: Sequence[Candidate]) -> str:
    """Return the command that adds the fastest missing kind of device; empty if there is a card, or nothing to install."""
    visible = [c for c in candidates if not c.backend.hidden]
    if any(hardware_type(c.info) is not DeviceType.CPU for c in visible):
        return ""
    if runs_intels_runtime():
        return "" if _is_installed("intel-opencl-rt") else PROCESSOR_DRIVER
    if not only_reference(candidates):
        return ""
    if platform.system() == "Linux":
        return "apt install pocl-opencl-icd"
    return "" if _is_installed("wgpu") else 'pip install "polyhal[wgpu]"'


def only_reference(candidates: Sequence[Candidate]) -> bool:
    """Return whether no device but the reference was found, which computes in NumPy."""
    return all(c.backend.name == _REFERENCE or c.backend.hidden for c in candidates)


def notice(candidates: Sequence[Candidate]) -> str:
    """Return the line that a program prints if the default device is the reference for lack of others; else empty."""
    if not candidates or not only_reference(candidates):
        return ""
    step = next_step(candidates)
    remedy = f"next step: {step}" if step else "`polyhal doctor` shows the reasons"
    return (
        f"no OpenCL device and no GPU was found, so NumPy computes, slowly; {remedy} (POLYHAL_DEVICE=numpy: no notice)"
    )


def runs_intels_runtime() -> bool:
    """Return whether Intel's OpenCL runtime for processors exists for this system."""
    return platform.machine().lower() in ("x86_64", "amd64") and platform.system() in ("Linux", "Windows")


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
