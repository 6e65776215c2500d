"""Install hints: where to get an OpenCL driver on a machine that has none."""

from __future__ import annotations

import platform
import sys


def driver() -> str:
    """Return what to install on this system to get an OpenCL driver."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    packaged = "pip install 'polyhal[cpu]' for a CPU device (Intel's runtime, any x86-64 processor)"
    if sys.platform == "darwin":
        return "macOS brings its own OpenCL: pip install --force-reinstall pyopencl to get the wheel that uses it"
    if sys.platform == "win32":
        vendor = "install the current graphics driver of NVIDIA, AMD or Intel, which contains OpenCL"
        return f"{vendor}; or {packaged}" if x86 else vendor
    vendor = (
        "install your GPU's driver (NVIDIA: the proprietary driver; AMD: rocm-opencl-runtime or mesa-opencl-icd; "
        "Intel: intel-opencl-icd)"
    )
    cpu = (
        f"{packaged}, or pip install pocl-binary-distribution (PoCL)"
        if x86
        else "the package pocl-opencl-icd for a CPU device"
    )
    return f"{vendor}; or {cpu}"


def package() -> str:
    """Return what to do if pyopencl cannot be imported."""
    return f"reinstall pyopencl (pip install --force-reinstall pyopencl), and {driver()}"
