"""Probing: listing the devices of a backend, with validation of the result and a time limit."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from polyhal.hal.capabilities import DeviceInfo, DeviceType, UnusableDevice
from polyhal.hal.core.plugins.entry_points import Failure, PluginError, failure, slow_plugin_fix
from polyhal.hal.core.plugins.software_renderers import is_software_renderer
from polyhal.hal.core.plugins.timeout import NoAnswerError, within
from polyhal.hal.core.settings import env
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.printable import printable


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that exists and could be opened."""

    backend: BackendSpec
    info: DeviceInfo

    @property
    def name(self) -> str:
        """The name of the device, such as `opencl:0`."""
        return canonical_name(self.backend, self.info)


def canonical_name(spec: BackendSpec, info: DeviceInfo) -> str:
    """Return the canonical name of a device, regardless of the name by which it was opened."""
    return f"{spec.name}:{info.selector}" if info.selector else spec.name


def hardware_type(info: DeviceInfo) -> DeviceType:
    """Return the type of hardware that a device runs on. Software renderers run on CPUs."""
    return DeviceType.CPU if is_software_renderer(info.name) else info.type


def probe(spec: BackendSpec) -> tuple[list[Candidate], list[Failure]]:
    """Return the devices of a backend, and the reasons for missing or invalid ones. Limited by POLYHAL_PROBE_TIMEOUT."""
    source = f"backend {spec.name}"
    candidates: list[Candidate] = []
    failures: list[Failure] = []
    try:
        infos = listed(spec)
    except NoAnswerError as error:
        late = PluginError(f"probing for devices gave {error}", slow_plugin_fix(f"POLYHAL_DISABLE={spec.name}"))
        return candidates, [failure(source, late)]
    except Exception as error:  # drivers raise anything; it is reported
        return candidates, [failure(source, error)]
    for info in infos:
        if isinstance(info, UnusableDevice):
            reason = f"left out: {info.reason}"
            failures.append(Failure(f"{spec.name} device {info.name}", reason, info.fix, info.unexpected))
            continue
        problem = invalid_field(info, spec)
        if not problem and any(c.info.selector == info.selector for c in candidates):
            problem = f"two devices have the selector {info.selector!r}"
        if problem:
            reason = f"probe returned a device that is left out: {problem}"
            failures.append(Failure(source, reason, "update the plug-in"))
        else:
            candidates.append(Candidate(spec, info.shown()))
    return candidates, failures


def listed(spec: BackendSpec) -> list[Any]:
    """Return the unchecked result of a backend's `probe`. Raises NoAnswerError, PluginError or any other Exception."""
    return within(env.probe_timeout(), lambda: _call_probe(spec), f"probe {spec.name}")


def _call_probe(spec: BackendSpec) -> list[Any]:
    returned = resolve(spec.probe)()
    if not isinstance(returned, Iterable):
        raise PluginError(f"probe returned {shown(returned)}; expected a sequence of DeviceInfo", "update the plug-in")
    return list(returned)


def invalid_field(info: Any, spec: BackendSpec) -> str:
    """Return the problem of a device description of `spec`; empty if it is valid."""
    if not isinstance(info, DeviceInfo):
        return f"it is {shown(info)}; expected a DeviceInfo"
    for field in ("backend", "name", "driver", "id", "selector", "vendor"):
        value = getattr(info, field)
        if not isinstance(value, str) or (not value and field in ("backend", "name", "id")):
            return f"its {field} is {shown(value)}; expected text"
    if not info.selector.isprintable():
        return f"its selector is {info.selector!r}; expected printable characters"
    if info.backend != spec.name:
        return f"its backend is {info.backend!r}; expected {spec.name!r}"
    hardware: object = info.type
    if not isinstance(hardware, DeviceType):
        return f"its type is {shown(hardware)}; expected a DeviceType"
    memory: object = info.memory
    if not isinstance(memory, int) or memory < 0:
        return f"its memory is {shown(memory)}; expected a number of bytes"
    return ""


def shown(value: Any) -> str:
    """Return a value of a plug-in as text for a message, even if its `__repr__` raises."""
    try:
        return printable(repr(value))
    except BaseException as error:
        return f"a {type(value).__name__} (its repr raises {type(error).__name__})"


def resolve(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """Return the function that a spec names, imported if it is given as "module:function"."""
    if not isinstance(function, str):
        return function
    module, _, attribute = function.partition(":")
    imported: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return imported
