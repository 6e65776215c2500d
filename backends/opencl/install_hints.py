"""Where an OpenCL driver comes from, for people on whose machine none was found."""

from __future__ import annotations

import platform
import sys


def driver() -> str:
    """What to install on this system."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    packaged = "pip install 'polyhal[cpu]' for a CPU device (Intel's runtime, any x86-64 processor)"
    if sys.platform == "darwin":
        return "macOS brings its own OpenCL: pip install --force-reinstall pyopencl to get the wheel that uses it"
    if sys.platform == "win32":
        maker = "install the current graphics driver of NVIDIA, AMD or Intel, which contains OpenCL"
        return f"{maker}; or {packaged}" if x86 else maker
    maker = (
        "install your GPU's driver (NVIDIA: the proprietary driver; AMD: rocm-opencl-runtime or mesa-opencl-icd; "
        "Intel: intel-opencl-icd)"
    )
    cpu = (
        f"{packaged}, or pip install pocl-binary-distribution (PoCL)"
        if x86
        else "the package pocl-opencl-icd for a CPU device"
    )
    return f"{maker}; or {cpu}"


def package() -> str:
    """What to do when pyopencl itself cannot be imported."""
    return f"reinstall pyopencl (pip install --force-reinstall pyopencl), and {driver()}"
