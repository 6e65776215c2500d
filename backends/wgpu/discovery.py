"""The adapters that wgpu finds, each physical device once, through the best graphics API that offers it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.discovery.software_renderers import is_software_renderer
from polyhal.hal.errors import DeviceUnavailableError, message

_MISSING = "the package wgpu is not installed: `pip install polyhal[wgpu]`"
_NO_ADAPTER = (
    "wgpu finds no adapter. Install the driver of your GPU's vendor with Vulkan support; for a software device on "
    "Debian or Ubuntu, `apt install mesa-vulkan-drivers libvulkan1`"
)
_NO_INTEGERS = (
    "wgpu finds {names}, but only through an API without 64-bit integers, which indices need. Install a Vulkan driver; "
    'Device("wgpu:opengl") opens it all the same, for work that keeps to 32 bits'
)
_TYPES = {
    "DiscreteGPU": DeviceType.GPU,
    "IntegratedGPU": DeviceType.INTEGRATED_GPU,
    "CPU": DeviceType.CPU,
}
_API_RANK = {"Vulkan": 0, "Metal": 0, "D3D12": 1, "OpenGL": 2, "OpenGLES": 3}
"""Vulkan and Metal come first. OpenGL, which lacks 64-bit integers and half precision, is for old devices."""
_TYPE_RANK = {DeviceType.GPU: 0, DeviceType.INTEGRATED_GPU: 1, DeviceType.ACCELERATOR: 2, DeviceType.CPU: 3}


@dataclass(frozen=True, slots=True)
class WGPUAdapter:
    """A wgpu adapter and its description."""

    native: Any
    info: DeviceInfo
    api: str


def probe() -> list[DeviceInfo]:
    """Return the descriptions of all devices. Raises RuntimeError, with what to install, if there is none."""
    return [a.info for a in devices()]


def devices(*, every_api: bool = False) -> list[WGPUAdapter]:
    """Return all devices. Raises RuntimeError if there is none.

    With `every_api`, that includes devices that a better API offers too, and devices without 64-bit integers.
    """
    try:
        import wgpu
    except ImportError as error:
        raise RuntimeError(_MISSING) from error
    with _runtime_dir():
        listed = wgpu.gpu.enumerate_adapters_sync()
    adapters = [WGPUAdapter(a, _describe(a), str(a.info["backend_type"])) for a in listed]
    if not adapters:
        raise RuntimeError(_NO_ADAPTER)
    adapters.sort(key=lambda a: (_TYPE_RANK[a.info.type], _API_RANK.get(a.api, 9), a.info.name))
    if not every_api:
        best: dict[str, WGPUAdapter] = {}
        for a in adapters:
            if "shader-int64" in a.native.features:
                best.setdefault(a.info.id, a)
        if not best:
            raise RuntimeError(_NO_INTEGERS.format(names=", ".join(sorted({a.info.name for a in adapters}))))
        adapters = list(best.values())
    return [replace(a, info=replace(a.info, selector=str(i))) for i, a in enumerate(adapters)]


def select(selector: str) -> WGPUAdapter:
    """Return the device with that index, or the first one whose API or name contains `selector`.

    Raises DeviceUnavailableError that lists the candidates.
    """
    candidates = devices()
    if selector.isdigit():
        if int(selector) < len(candidates):
            return candidates[int(selector)]
    else:
        part = selector.lower()
        for a in devices(every_api=True):
            if part in a.api.lower() or part in a.info.name.lower() or selector == a.info.id:
                return replace(a, info=replace(a.info, selector=part))
    listed = ", ".join(f"{a.info.selector} = {a.info.name} ({a.api})" for a in candidates)
    raise DeviceUnavailableError(
        message(None, f"no wgpu device {selector!r}", expected=f"one of {listed}", fix="or part of a name")
    )


@contextmanager
def _runtime_dir() -> Iterator[None]:
    """Set XDG_RUNTIME_DIR while drivers are loaded. Without it, the display library complains on stderr."""
    if not sys.platform.startswith("linux") or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


def _describe(adapter: Any) -> DeviceInfo:
    about = adapter.info
    name = str(about["device"]) or str(about["description"])
    kind = _TYPES.get(str(about["adapter_type"]))
    software = is_software_renderer(name)
    if software or kind is None:
        # OpenGL does not report what it runs on. A GPU of unknown kind counts as the weaker one.
        kind = DeviceType.CPU if software else DeviceType.INTEGRATED_GPU
    return DeviceInfo(
        backend="wgpu",
        name=name,
        type=kind,
        memory=_host_memory() if kind is DeviceType.CPU else 0,
        driver=f"{about['backend_type']} {about['description']}".strip(),
        id=f"{int(about['vendor_id']):04x}:{int(about['device_id']):04x}:{name}"
        if not software
        else f"software:{name}",
        vendor=str(about["vendor"]),
    )


def _host_memory() -> int:
    """Return the bytes of main memory, 0 if unknown. wgpu reports no memory sizes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
