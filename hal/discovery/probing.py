"""Asking a backend for its devices, without believing or waiting for it too long."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.discovery.plugins import Failure, PluginError, failure, slow
from polyhal.hal.discovery.software_renderers import is_software_renderer
from polyhal.hal.discovery.timeout import NoAnswerError, within
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.settings import env


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that exists and could be opened."""

    backend: BackendSpec
    info: DeviceInfo

    @property
    def name(self) -> str:
        return canonical(self.backend, self.info)


def canonical(spec: BackendSpec, info: DeviceInfo) -> str:
    """The name of a device that two handles of it share."""
    return f"{spec.name}:{info.selector}" if info.selector else spec.name


def kind(info: DeviceInfo) -> DeviceType:
    """The kind of hardware that a device runs on: software rasterisers are CPUs."""
    return DeviceType.CPU if is_software_renderer(info.name) else info.type


def probe(spec: BackendSpec) -> tuple[list[Candidate], list[Failure]]:
    """The devices of a backend, and why it has none or fewer than it says. Bounded by POLYHAL_PROBE_TIMEOUT."""
    source = f"backend {spec.name}"
    found: list[Candidate] = []
    failures: list[Failure] = []
    try:
        infos = within(env.probe_timeout(), lambda: _answer(spec), f"probe {spec.name}")
    except NoAnswerError as error:
        late = PluginError(f"probing for devices gave {error}", slow(f"POLYHAL_DISABLE={spec.name}"))
        return found, [failure(source, late)]
    except Exception as error:  # drivers raise anything; it is reported
        return found, [failure(source, error)]
    for info in infos:
        problem = nonsense(info, spec)
        if not problem and any(c.info.selector == info.selector for c in found):
            problem = f"two devices have the selector {info.selector!r}"
        if problem:
            failures.append(
                Failure(source, f"probe returned a device that is left out: {problem}", "update the plug-in")
            )
        else:
            found.append(Candidate(spec, info))
    return found, failures


def _answer(spec: BackendSpec) -> list[Any]:
    returned = target(spec.probe)()
    if not isinstance(returned, Iterable):
        raise PluginError(f"probe returned {returned!r}; expected a sequence of DeviceInfo", "update the plug-in")
    return list(returned)


def nonsense(info: Any, spec: BackendSpec) -> str:
    """What is wrong with the description of a device of `spec`; empty where nothing is."""
    if not isinstance(info, DeviceInfo):
        return f"it is {info!r}; expected a DeviceInfo"
    for field in ("backend", "name", "driver", "id", "selector", "vendor"):
        value = getattr(info, field)
        if not isinstance(value, str) or (not value and field in ("backend", "name", "id")):
            return f"its {field} is {value!r}; expected text"
    if info.backend != spec.name:
        return f"its backend is {info.backend!r}; expected {spec.name!r}"
    hardware: object = info.type
    if not isinstance(hardware, DeviceType):
        return f"its type is {hardware!r}; expected a DeviceType"
    memory: object = info.memory
    if not isinstance(memory, int) or memory < 0:
        return f"its memory is {memory!r}; expected a number of bytes"
    return ""


def target(given: Callable[..., Any] | str) -> Callable[..., Any]:
    """The function that a spec names, imported where it is given as "module:function"."""
    if not isinstance(given, str):
        return given
    module, _, attribute = given.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found
