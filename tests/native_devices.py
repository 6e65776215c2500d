"""The devices that kernel tests run on: every OpenCL device, every adapter of wgpu, and devices of other backends by name.

`POLYHAL_KERNEL_DEVICES` lists the names of further devices, such as `sim` or a device of a plug-in.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from devices import listed
from native_harness import Harness

from polyhal.hal.device import Device

_GPU_GROUP = 256
_POCL_SHARE, _SHARE = 1, 24
"""Relative numbers of cases: PoCL takes eight times as long as other drivers to compile a kernel."""


@dataclass(frozen=True)
class NativeDevice:
    """A device with native kernels, identified by the name of its backend and its id in names of tests."""

    backend: str
    id: str
    found: Any = field(compare=False)
    """Description by the backend's discovery."""
    opened: Callable[[Mapping[str, bool | int]], Any] | None = field(default=None, compare=False)
    """Function that opens the device with some quirks switched on or off; None if the registry opens it."""
    ops: frozenset[str] | None = field(default=None, compare=False)
    """Ops with a kernel; None if the backend may decline any op."""
    share: int = 1
    """Relative number of cases among the devices of its backend."""

    @functools.cached_property
    def harness(self) -> Harness:
        """Return the opened device, shared by the tests of a process."""
        if self.opened is None:
            return Harness(Device(self.id).backend, may_decline=True)
        return Harness(self.opened({}), self.opened)


def _available(devices: Callable[[], list[NativeDevice]]) -> Callable[[], list[NativeDevice]]:
    """Make a function that runs once, and returns an empty list if the backend's package or driver is missing."""

    @functools.cache
    def available() -> list[NativeDevice]:
        try:
            return devices()
        except (ImportError, RuntimeError):
            return []

    return available


@_available
def opencl_devices() -> list[NativeDevice]:
    """Return one OpenCL device of each vendor's drivers and type, all devices with POLYHAL_TEST_ALL=1.

    A machine may have PoCL both from PyPI and from its distribution.
    """
    from polyhal.backends.opencl import discovery
    from polyhal.backends.opencl.backend import OpenCLBackend
    from polyhal.backends.opencl_c.lowering import table

    ops = frozenset(table())
    devices = []
    kinds: set[tuple[str, Any]] = set()
    for found in discovery.devices():
        platform = found.platform.split("(")[0].split()[0].lower()
        if (platform, found.info.type) in kinds and not os.environ.get("POLYHAL_TEST_ALL"):
            continue
        kinds.add((platform, found.info.type))
        share = _POCL_SHARE if platform == "portable" else _SHARE
        name = f"{found.info.selector}-{platform}"
        devices.append(NativeDevice("opencl", name, found, partial(OpenCLBackend, found), ops, share))
    return devices


@_available
def wgpu_devices() -> list[NativeDevice]:
    """Return each physical device through every API that supports it; the first CPU also with the kernels of GPUs."""
    from polyhal.backends.wgpu import discovery
    from polyhal.backends.wgpu.backend import WGPUBackend, open_adapter
    from polyhal.backends.wgpu.lowering import table

    ops = frozenset(table())

    def device(found: Any, as_gpu: bool) -> NativeDevice:
        def opened(quirks: Mapping[str, bool | int]) -> WGPUBackend:
            backend = open_adapter(found, quirks=quirks)
            if as_gpu:
                backend.runtime.features = replace(backend.features, cpu=False, group_size=_GPU_GROUP)
            return backend

        name = f"{found.info.selector}-{found.api.lower()}{'-as-gpu' if as_gpu else ''}"
        return NativeDevice("wgpu", name, found, opened, ops)

    adapters = discovery.devices(every_api=True)
    return [*(device(f, False) for f in adapters), *(device(f, True) for f in adapters[:1] if f.info.type == "cpu")]


def other_devices() -> list[NativeDevice]:
    """Return the devices that `POLYHAL_KERNEL_DEVICES` lists."""
    return [NativeDevice(name.partition(":")[0], name, None) for name in listed("POLYHAL_KERNEL_DEVICES")]
