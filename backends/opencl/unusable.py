"""Devices that a driver lists but that cannot run kernels, and the reasons that discovery reports.

Kernels are OpenCL C 1.2 with 64-bit integers, compiled from source.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Sequence
from typing import Any

from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.opencl import install_hints, mesa_hints
from polyhal.backends.opencl_c import quirks
from polyhal.hal.capabilities import UnusableDevice
from polyhal.hal.core.settings import env
from polyhal.hal.system.discovery import processor

_TRIAL = "kernel void trial(global int *out) { out[get_global_id(0)] = 1; }"
_UPDATE = "update the driver; kernels need {}"
_OLD_COMPILER = "unknown target CPU"
"""LLVM's message for a processor that it does not support yet."""
_MISTAKEN = re.compile(r"-(znver[123])$")
"""Name of an AMD processor without AVX-512 at the end of the device's version; LLVM before 16 takes a Zen 4 for one."""


def examine(platform: Any, device: Any) -> UnusableDevice | None:
    """Return why a device cannot run kernels; None if it can, as far as can be checked. Raises pyopencl.Error."""
    import pyopencl as cl

    cpu = bool(device.type & cl.device_type.CPU)
    known = quirks.match(platform.name, device.driver_version, device.name, cpu=cpu)
    problem = _missing(device)
    if problem and known.replaced:
        problem = problem[0], mesa_hints.replaced()
    if not problem and known.try_compiler:
        problem = _mixture(device) or _refusal(platform, device)
    return None if problem is None else UnusableDevice(label(platform, device), *problem)


def without_devices(empty: Sequence[Any], platforms: Sequence[Any]) -> list[UnusableDevice]:
    """Return records of platforms in `empty` whose drivers may have a device; `platforms` are all platforms."""
    on_request = [p for p in platforms if _known(p).devices_on_request]
    found = [UnusableDevice(_maker(p), *mesa_hints.no_device()) for p in on_request if p in empty]
    for p in empty:
        if _known(p).replaced and not on_request:
            reason = f"it lists no device, and supports no more than {p.version.strip()}"
            found.append(UnusableDevice(_maker(p), reason, mesa_hints.replaced()))
    return found


def _known(platform: Any) -> quirks.DriverQuirks:
    return quirks.match(platform.name, "", "", cpu=False)


def _maker(platform: Any) -> str:
    return f"{platform.name.strip()} ({platform.vendor.strip()})"


def label(platform: Any, device: Any) -> str:
    """Return a name of a device that is unique among drivers."""
    return f"{device.name.strip()} ({platform.name.strip()} {device.driver_version})"


def failing(name: str, error: Exception) -> UnusableDevice:
    """Return the record of a device, or of a whole platform, whose driver fails to describe it."""
    return UnusableDevice(name, f"its driver fails to describe it: {error}", "reinstall or update the driver")


def opencl_version(device: Any) -> tuple[int, int]:
    """Return the version of OpenCL that a device supports."""
    match = re.match(r"OpenCL (\d+)\.(\d+)", device.version)
    return (int(match.group(1)), int(match.group(2))) if match else (1, 0)


def _missing(device: Any) -> tuple[str, str] | None:
    """Return a requirement that the device lacks by its driver's own report, and a remedy."""
    major, minor = opencl_version(device)
    if (major, minor) < (1, 2):
        return f"it supports OpenCL {major}.{minor}", _UPDATE.format("OpenCL 1.2")
    if device.profile == "EMBEDDED_PROFILE" and "cles_khr_int64" not in device.extensions.split():
        return "it has the embedded profile, without 64-bit integers", _UPDATE.format("cles_khr_int64")
    if not device.available:
        return (
            "its driver reports it as not available",
            "check whether another program or a container's limits block it",
        )
    if not device.compiler_available:
        return "its driver has no compiler", _UPDATE.format("a compiler of OpenCL C")
    return None


def _mixture(device: Any) -> tuple[str, str] | None:
    """Return the problem if the compiler takes the processor for an older one, but the driver's functions do not.

    Drivers choose their built-in functions by the processor's instructions. AVX-512 functions in code for a processor
    without it send LLVM into endless loops or make it abort the process.
    """
    target = _MISTAKEN.search(device.version.strip())
    if target is None or "avx512f" not in processor.instruction_sets():
        return None
    mistake = f"its compiler takes this processor for {target.group(1)}, which has no AVX-512, and fails at built-in functions"
    return f"{mistake} that use it", install_hints.newer_compiler()


def _refusal(platform: Any, device: Any) -> tuple[str, str] | None:
    """Return the compiler's message and a remedy if it refuses a trivial kernel.

    Success is cached on disk by driver and by processor, which is part of the device's version: loading a compiler
    takes a tenth of a second. Failure is not cached, because it is fast, and repairing the driver's files may fix it.
    """
    accepted = DiskCache(env.cache_dir() / "opencl" / "compilers")
    key = DiskCache.key([platform.name, platform.version, device.name, device.version, device.driver_version])
    if accepted.load(key) is not None:
        return None
    log = _compile(device)
    if not log:
        accepted.store(key, b"")
        return None
    cause, fix = mesa_hints.missing_headers(log, device.name) or (
        "because it is older than this processor" if _OLD_COMPILER in log else "",
        install_hints.newer_compiler(),
    )
    return f"its compiler refuses every kernel{', ' if cause else ''}{cause}: {log}", fix


@functools.cache
def _compile(device: Any) -> str:
    """Compile a trivial kernel, without linking it. Return the first line of the compiler's log; empty if it succeeds."""
    import pyopencl as cl

    try:
        # `cl.Program` would warn that its own cache is not used.
        program = cl._cl._Program(
            cl.Context([device]), f"{_TRIAL} // {time.time_ns()}: a text that no driver has cached"
        )
    except cl.Error as error:
        return str(error)
    try:
        program.compile(b"", [device], [])
    except cl.Error as error:
        lines = str(program.get_build_info(device, cl.program_build_info.LOG)).splitlines()
        return next((line.strip() for line in lines if line.strip()), str(error))
    return ""
