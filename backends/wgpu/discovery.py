"""Adapters found by wgpu: each physical device once, through its best graphics API."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from polyhal.backends.wgpu import native
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.plugins.software_renderers import is_software_renderer
from polyhal.hal.core.settings import env
from polyhal.hal.errors import DeviceUnavailableError, message

_MISSING = "the package wgpu is not installed"
_EXTRA = 'pip install "polyhal[wgpu]" for GPUs through Vulkan, Metal and Direct3D 12'
_NO_ADAPTER = (
    "wgpu finds no adapter. Install the driver of your GPU's vendor with Vulkan support; for a software device on "
    "Debian or Ubuntu, `apt install mesa-vulkan-drivers libvulkan1`"
)
_OPENGL = "POLYHAL_OPENGL=1 also lists devices that only OpenGL supports"
_APIS = ("Vulkan", "Metal", "DX12")
"""APIs whose adapters are always listed. Adapters of OpenGL are listed on request, because Mesa's OpenGL drivers load an
LLVM into the process, and a program that loads another one later, as `import triton` does, crashes."""
_TYPES = {
    "DiscreteGPU": DeviceType.GPU,
    "IntegratedGPU": DeviceType.INTEGRATED_GPU,
    "CPU": DeviceType.CPU,
}
_API_RANK = {"Vulkan": 0, "Metal": 0, "D3D12": 1, "OpenGL": 2, "OpenGLES": 3}
"""Vulkan and Metal are preferred. OpenGL lacks 64-bit integers and half precision, and is for old devices."""
_INT64 = "shader-int64"
_SUFFIXES = re.compile(r" \(.*|/.*")
"""Suffixes that drivers add to the name of a card: the names of the driver and the bus."""


@dataclass(frozen=True, slots=True)
class WGPUAdapter:
    """A wgpu adapter and its description."""

    native: Any
    info: DeviceInfo
    api: str


def probe() -> list[DeviceInfo]:
    """Return the descriptions of all devices. Raises RuntimeError, with installation advice, if there is none."""
    return [a.info for a in devices()]


def devices(*, every_api: bool = False) -> list[WGPUAdapter]:
    """Return each device once, through the best API that supports it with 64-bit integers, or else the best one.

    With `every_api`, once for each API that supports it. Raises RuntimeError, with installation advice, if there is none.
    """
    listed = _listed()
    if every_api:
        return _numbered(listed)
    best: list[WGPUAdapter] = []
    for a in sorted(listed, key=lambda a: bool(a.info.lacks)):
        if not any(_is_same_card(a, b) for b in best):
            best.append(a)
    return _numbered(sorted(best, key=listed.index))


def _is_same_card(a: WGPUAdapter, b: WGPUAdapter) -> bool:
    """Return whether two adapters are one card. OpenGL has no hardware ids, so names are compared."""
    if a.info.id == b.info.id or not (a.api.startswith("OpenGL") or b.api.startswith("OpenGL")):
        return a.info.id == b.info.id
    first, second = (_SUFFIXES.sub("", x.info.name).lower() for x in (a, b))
    return first in second or second in first


def _listed() -> list[WGPUAdapter]:
    """Return all adapters of wgpu, best kinds and APIs first. Raises RuntimeError if there are none."""
    try:
        import wgpu
    except ImportError as error:
        missing = RuntimeError(_MISSING)
        missing.add_note(_EXTRA)
        raise missing from error
    with _runtime_dir():
        if not env.opengl():
            native.limit_apis(_APIS)
        listed = wgpu.gpu.enumerate_adapters_sync()
    if not listed:
        raise RuntimeError(_NO_ADAPTER if env.opengl() else f"{_NO_ADAPTER}; {_OPENGL}")
    adapters = [WGPUAdapter(a, describe(a), str(a.info["backend_type"])) for a in listed]
    return sorted(adapters, key=lambda a: (list(DeviceType).index(a.info.type), _API_RANK.get(a.api, 9), a.info.name))


def _numbered(adapters: Iterable[WGPUAdapter]) -> list[WGPUAdapter]:
    return [replace(a, info=replace(a.info, selector=str(i))) for i, a in enumerate(adapters)]


def select(selector: str) -> WGPUAdapter:
    """Return the device with that index, or the first one whose API or name contains `selector`.

    A name matches devices of all APIs. Raises DeviceUnavailableError, which lists the candidates.
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
    fix = "or part of a name" if env.opengl() else f"or part of a name; {_OPENGL}"
    raise DeviceUnavailableError(
        message(None, f"no wgpu device matches {selector!r}", expected=f"one of {listed}", fix=fix)
    )


@contextmanager
def _runtime_dir() -> Iterator[None]:
    """Set XDG_RUNTIME_DIR while drivers are loaded. Without it, the display library prints a warning on stderr."""
    if not sys.platform.startswith("linux") or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


def describe(adapter: Any) -> DeviceInfo:
    """Return the identity of an adapter."""
    about = adapter.info
    name = str(about["device"]) or str(about["description"])
    kind = _TYPES.get(str(about["adapter_type"]))
    software = is_software_renderer(name)
    if software or kind is None:
        # OpenGL does not report the kind of device. A GPU of unknown kind counts as integrated, the weaker kind.
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
        lacks="" if _INT64 in adapter.features else "64-bit integers",
    )


def _host_memory() -> int:
    """Return the bytes of main memory, 0 if unknown. wgpu reports no memory sizes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
