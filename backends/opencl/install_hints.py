"""Install hints: sources of an OpenCL driver for a machine without one."""

from __future__ import annotations

import sys

from polyhal.hal.system.discovery.next_step import PROCESSOR_DRIVER, runs_intels_runtime

_PACKAGED = f"{PROCESSOR_DRIVER} for a CPU device (Intel's runtime, any x86-64 processor)"


def driver() -> str:
    """Return instructions to install an OpenCL driver on this system."""
    if sys.platform == "darwin":
        return "macOS includes OpenCL: pip install --force-reinstall pyopencl to get the wheel that uses it"
    if sys.platform == "win32":
        vendor = "install the current graphics driver of NVIDIA, AMD or Intel, which contains OpenCL"
        return f"without a GPU {_PACKAGED}; for a GPU {vendor}" if runs_intels_runtime() else vendor
    vendor = (
        "for a GPU its driver (NVIDIA: the proprietary driver; AMD: rocm-opencl-runtime, or mesa-opencl-icd with "
        "RUSTICL_ENABLE=radeonsi; Intel: intel-opencl-icd; Arm: mesa-opencl-icd with RUSTICL_ENABLE=panfrost)"
    )
    cpu = _PACKAGED if runs_intels_runtime() else "apt install pocl-opencl-icd for a CPU device"
    return f"without a GPU {cpu}; {vendor}"


def newer_compiler() -> str:
    """Return the remedy for a driver whose compiler does not work on this processor."""
    newer = "install a newer version of the driver"
    if sys.platform.startswith("linux"):
        newer += ", such as your distribution's (Debian, Ubuntu: apt install pocl-opencl-icd)"
    return f"{_PACKAGED}; or {newer}" if runs_intels_runtime() else newer


def offline_compiler(tool: str) -> str:
    """Return instructions to install a vendor's offline compiler."""
    packages = {
        "clang": "clang and the device libraries of ROCm (Debian, Ubuntu: apt install clang rocm-device-libs)",
        "ocloc": "Intel's compute runtime (Debian: apt install intel-opencl-icd; Ubuntu: apt install intel-ocloc)",
    }
    return f"install {packages[tool]}"


def package() -> str:
    """Return the remedy if pyopencl cannot be imported."""
    return f'install pyopencl (pip install "polyhal[opencl]"), and {driver()}'
