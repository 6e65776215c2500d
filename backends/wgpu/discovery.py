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
    "wgpu finds no adapter. Install the driver of your GPU's maker with Vulkan support; for a software device on "
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
"""Vulkan and Metal come first; OpenGL lacks 64-bit integers and half precision, and is there for old devices."""
_TYPE_RANK = {DeviceType.GPU: 0, DeviceType.INTEGRATED_GPU: 1, DeviceType.ACCELERATOR: 2, DeviceType.CPU: 3}


@dataclass(frozen=True, slots=True)
class Found:
    """A wgpu adapter with what is known of it."""

    adapter: Any
    info: DeviceInfo
    api: str


def probe() -> list[DeviceInfo]:
    """All devices. Raises RuntimeError, with what to install, when there is none."""
    return [f.info for f in devices()]


def devices(*, every_api: bool = False) -> list[Found]:
    """All devices with their adapters; with `every_api` also those that a better API offers already, or that lack int64.

    Raises RuntimeError when there is none.
    """
    try:
        import wgpu
    except ImportError as error:
        raise RuntimeError(_MISSING) from error
    with _runtime_dir():
        adapters = wgpu.gpu.enumerate_adapters_sync()
    found = [Found(a, _describe(a), str(a.info["backend_type"])) for a in adapters]
    if not found:
        raise RuntimeError(_NO_ADAPTER)
    found.sort(key=lambda f: (_TYPE_RANK[f.info.type], _API_RANK.get(f.api, 9), f.info.name))
    if not every_api:
        best: dict[str, Found] = {}
        for f in found:
            if "shader-int64" in f.adapter.features:
                best.setdefault(f.info.id, f)
        if not best:
            raise RuntimeError(_NO_INTEGERS.format(names=", ".join(sorted({f.info.name for f in found}))))
        found = list(best.values())
    return [replace(f, info=replace(f.info, selector=str(i))) for i, f in enumerate(found)]


def select(selector: str) -> Found:
    """The device with that index, or the first whose API or name contains `selector`.

    Raises DeviceUnavailableError with the candidates.
    """
    found = devices()
    if selector.isdigit():
        if int(selector) < len(found):
            return found[int(selector)]
    else:
        wanted = selector.lower()
        for f in devices(every_api=True):
            if wanted in f.api.lower() or wanted in f.info.name.lower() or selector == f.info.id:
                return replace(f, info=replace(f.info, selector=wanted))
    listed = ", ".join(f"{f.info.selector} = {f.info.name} ({f.api})" for f in found)
    raise DeviceUnavailableError(
        message(None, f"no wgpu device {selector!r}", expected=f"one of {listed}", fix="or part of a name")
    )


@contextmanager
def _runtime_dir() -> Iterator[None]:
    """A value for XDG_RUNTIME_DIR while drivers are loaded: without one, the display library complains on stderr."""
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
        # OpenGL does not say what it runs on: a GPU of unknown kind counts as the weaker one.
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
    """Bytes of main memory, 0 where the system does not say. wgpu reports no memory sizes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
