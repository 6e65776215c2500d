"""Remedies for Mesa's OpenCL drivers, which need configuration after installation.

Source: https://docs.mesa3d.org/rusticl.html and https://docs.mesa3d.org/envvars.html
"""

from __future__ import annotations

import os
import re

_VARIABLE = "RUSTICL_ENABLE"
_NAMES = "radeonsi (AMD), iris (Intel), panfrost (Arm), asahi (Apple) or llvmpipe (the processor, slow)"
"""Mesa's drivers by name; each has to be enabled by its name."""
_NO_HEADERS = re.compile(r"'opencl-c(-base)?\.h' file not found")


def no_device() -> tuple[str, str]:
    """Return the reason why the driver lists no device, and a remedy."""
    named = os.environ.get(_VARIABLE)
    if not named:
        reason = f"it lists no device, because {_VARIABLE} is not set"
        return reason, f"if your GPU has no other OpenCL driver, set {_VARIABLE} to the name of Mesa's: {_NAMES}"
    fix = (
        f"check that it names the GPU's driver: {_NAMES}, with commas between several; that you may open the GPU's node "
        "/dev/dri/renderD* (as a member of the group `render`; in a container with `--device /dev/dri`); and that the built-in "
        "functions are installed, spirv64-mesa3d-.spv (Debian, Ubuntu: libclc-VERSION, on which mesa-opencl-icd depends)"
    )
    return f"it lists no device for {_VARIABLE}={named}", fix


def replaced() -> str:
    """Return the remedy for clover, whose last OpenCL version is 1.1."""
    return (
        f"use rusticl, which replaces clover since Mesa 22.3, and set {_VARIABLE} to the name of the GPU's driver: "
        f'{_NAMES}; or use the GPU through Vulkan: pip install "polyhal[wgpu]"'
    )


def header_remedy(log: str, device: str) -> str:
    """Return the remedy if the log of a build shows missing headers of clang, else an empty string."""
    missing = missing_headers(log, device)
    return missing[1] if missing else ""


def missing_headers(log: str, device: str) -> tuple[str, str] | None:
    """Return the reason and the remedy if the log of a clang-based compiler shows that its headers are missing."""
    if not _NO_HEADERS.search(log):
        return None
    llvm = re.search(r"LLVM (\d+)", device)
    package = f"libclang-common-{llvm[1]}-dev" if llvm else "libclang-common-VERSION-dev"
    version = "" if llvm else ", VERSION as in the libclang-cpp that `apt-cache depends mesa-opencl-icd` lists"
    return (
        "because clang's own headers are not installed",
        f"install the headers of the clang that the driver uses (Debian, Ubuntu: apt install {package}{version})",
    )
