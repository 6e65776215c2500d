"""The OpenCL devices of this machine: each physical card once, in an order that does not depend on driver files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from polyhal.backends.opencl import icd, identity, install_hints, pocl_affinity, sub_devices, unusable
from polyhal.backends.opencl_c.quirks import PLATFORM_ALIASES
from polyhal.hal.capabilities import DeviceInfo, DeviceType, UnusableDevice
from polyhal.hal.core.plugins.software_renderers import is_software_renderer
from polyhal.hal.errors import DeviceUnavailableError, message

_NO_PLATFORM = "no OpenCL driver was found"
_RANK = {DeviceType.GPU: 0, DeviceType.INTEGRATED_GPU: 1, DeviceType.ACCELERATOR: 2, DeviceType.CPU: 3}


@dataclass(frozen=True, slots=True)
class OpenCLDevice:
    """A pyopencl device and its description."""

    cl: Any
    info: DeviceInfo
    platform: str
    context: Any = None
    """Context that all parts of a split share; None for a device with its own context."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """The devices of this machine: usable ones in order, and unusable ones with reasons."""

    usable: list[OpenCLDevice]
    unusable: list[UnusableDevice]


def probe() -> list[DeviceInfo | UnusableDevice]:
    """Return the descriptions of all devices. Raises RuntimeError with install instructions if there are none."""
    found = discover()
    return [*(d.info for d in found.usable), *found.unusable]


def devices() -> list[OpenCLDevice]:
    """Return all devices that can run kernels. Raises RuntimeError if there are none, and ImportError without pyopencl."""
    found = discover()
    if not found.usable:
        error = RuntimeError(
            f"no OpenCL device can be used: {'; '.join(f'{d.name}: {d.reason}' for d in found.unusable)}"
        )
        error.add_note("; ".join(dict.fromkeys(d.fix for d in found.unusable)))
        raise error
    return found.usable


def discover() -> Discovered:
    """Return all devices, each physical card once.

    Raises RuntimeError if there is no platform or no device, and ImportError without pyopencl. Notes of the exceptions
    give the remedy.
    """
    with pocl_affinity.applied():
        listed, refused = _listed()
    cards: dict[str, OpenCLDevice] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for platform, device in listed:
        described = _examined(platform, device)
        if isinstance(described, UnusableDevice):
            refused.append(described)
            continue
        info = described.info
        number = seen[id(platform), info.id] = seen[id(platform), info.id] + 1
        # A platform lists each card once, so a repeated id is another card: some drivers give equal cards equal ids.
        card = info.id if number == 1 else f"{info.id}/{number}"
        cards.setdefault(card, replace(described, info=replace(info, id=card)))
    ordered = sorted(cards.values(), key=lambda d: (_RANK[d.info.type], d.platform, d.info.id))
    return Discovered([replace(d, info=replace(d.info, selector=str(i))) for i, d in enumerate(ordered)], refused)


def _listed() -> tuple[list[tuple[Any, Any]], list[UnusableDevice]]:
    """Return platforms and devices as the drivers list them, and the platforms whose drivers fail or list no devices."""
    registered = bool(icd.prepare().folder)
    _allow_absent_cache()
    try:
        import pyopencl as cl
    except ImportError as error:
        error.add_note(install_hints.package())
        raise
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        if registered and (problem := icd.load_problem()):
            return [], [UnusableDevice(icd.PACKAGED, *problem, unexpected=True)]
        raise _no_driver(f" ({error})") from error
    listed, refused, empty = [], [], []
    for platform in platforms:
        try:
            found = platform.get_devices()
        except cl.Error as error:
            found = []
            if error.code != cl.status_code.DEVICE_NOT_FOUND:
                refused.append(unusable.failing(platform.name, error))
                continue
        listed += [(platform, d) for d in found]
        if not found:
            empty.append(platform)
    refused += unusable.without_devices(empty, platforms)
    if registered and not any(icd.is_packaged(p.name) for p in platforms) and (problem := icd.load_problem()):
        refused.append(UnusableDevice(icd.PACKAGED, *problem, unexpected=True))
    if not listed and not refused:
        raise _no_driver()
    return listed, refused


def _allow_absent_cache() -> None:
    """Let pyopencl do without its own cache, and not fail, where the cache's folder cannot be written.

    It reads the variable when it is imported.
    """
    folder = Path(platformdirs.user_cache_dir("pytools", "pytools"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        os.environ.setdefault("PYOPENCL_NO_CACHE", "1")


def _examined(platform: Any, device: Any) -> OpenCLDevice | UnusableDevice:
    """Return the description of a device, or the reason why it cannot be used."""
    import pyopencl as cl

    try:
        problem = unusable.examine(platform, device)
        return problem or OpenCLDevice(device, _describe(platform, device), platform.name)
    except cl.Error as error:
        return unusable.failing(unusable.label(platform, device), error)


def _no_driver(reason: str = "") -> RuntimeError:
    error = RuntimeError(_NO_PLATFORM + reason)
    error.add_note(install_hints.driver())
    return error


def select(selector: str) -> OpenCLDevice:
    """Return the device with that index, or the first device whose platform name or own name contains `selector`.

    Some platforms have short names (`quirks.PLATFORM_ALIASES`). `/COUNT:INDEX` after either selects a part of the
    device (see sub_devices.py). Raises DeviceUnavailableError with the candidates or with the reason why the device
    cannot be used.
    """
    candidates = discover()
    if (found := _matching(candidates.usable, selector)) is not None:
        return found
    split = sub_devices.parse(selector)
    if split is not None and (found := _matching(candidates.usable, split.device)) is not None:
        return sub_devices.part(found, split)
    wanted = _part_of_name(split.device if split else selector)
    for device in candidates.unusable:
        if not candidates.usable or (not wanted.isdigit() and wanted in device.name.lower()):
            raise DeviceUnavailableError(
                message(None, f"OpenCL device {device.name} cannot be used: {device.reason}", fix=device.fix)
            )
    listed = ", ".join(f"{d.info.selector} = {d.info.name} ({d.platform})" for d in candidates.usable)
    raise DeviceUnavailableError(
        message(
            None,
            f"there is no OpenCL device {selector!r}",
            expected="an index or part of a platform's or device's name",
            fix=f"the devices are {listed}",
        )
    )


def _matching(candidates: Sequence[OpenCLDevice], selector: str) -> OpenCLDevice | None:
    if selector.isdigit():
        return candidates[int(selector)] if int(selector) < len(candidates) else None
    part = _part_of_name(selector)
    for d in candidates:
        if part in d.platform.lower() or part in d.info.name.lower() or selector == d.info.id:
            return d
    return None


def _part_of_name(selector: str) -> str:
    return PLATFORM_ALIASES.get(selector.lower(), selector.lower())


def _describe(platform: Any, device: Any) -> DeviceInfo:
    name = identity.product_name(device)
    type_ = kind(device, name)
    memory = int(device.global_mem_size)
    return DeviceInfo(
        backend="opencl",
        name=name,
        type=type_,
        memory=memory,
        driver=f"{platform.name} {device.driver_version}",
        id=identity.identity(platform, device, name, type_, memory),
        vendor=device.vendor.strip(),
    )


def kind(device: Any, name: str) -> DeviceType:
    """Return the hardware kind of a device called `name`."""
    import pyopencl as cl

    if device.type & cl.device_type.CPU or is_software_renderer(name):
        return DeviceType.CPU
    if device.type & cl.device_type.GPU:
        return DeviceType.INTEGRATED_GPU if device.host_unified_memory else DeviceType.GPU
    return DeviceType.ACCELERATOR
