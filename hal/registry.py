"""Finding backends by entry point, asking them for their devices, and choosing among these.

Each entry point loads on its own, so that a broken plug-in is recorded and hides no other.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from polyhal.hal import config
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError, message
from polyhal.hal.hookspecs import ENTRY_POINT_GROUP, PROJECT, BackendSpec, HookSpecs
from polyhal.hal.protocol import API_VERSION, ComputeBackend

_TYPE_RANK = {DeviceType.GPU: 0, DeviceType.ACCELERATOR: 1, DeviceType.INTEGRATED_GPU: 2, DeviceType.CPU: 3}

_SYNONYMS: dict[str, tuple[DeviceType, ...]] = {
    "cpu": (DeviceType.CPU,),
    "gpu": (DeviceType.GPU, DeviceType.INTEGRATED_GPU),
}
"""Names that stand for the best device of a kind, on whatever backend."""

_FOREIGN = {"cuda": "gpu", "mps": "gpu", "rocm": "gpu", "xpu": "gpu"}
"""What users of other frameworks type, and what to suggest."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an entry point, a probe or a device is not available."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that exists and could be opened."""

    backend: BackendSpec
    info: DeviceInfo

    @property
    def name(self) -> str:
        return f"{self.backend.name}:{self.info.selector}" if self.info.selector else self.backend.name


class Registry:
    """The backends of this process, their devices and the devices that are open."""

    def __init__(self, points: Sequence[EntryPoint] | None = None) -> None:
        self.failures: list[Failure] = []
        self.sources: list[tuple[str, str]] = []
        """(entry point, distribution) of everything that loaded, for `doctor`."""
        self.backends: dict[str, BackendSpec] = {}
        self._probed: dict[str, list[Candidate]] = {}
        self._open: dict[str, Device] = {}
        self._default: Device | None = None
        disabled = config.disabled_backends()
        for point in entry_points(group=ENTRY_POINT_GROUP) if points is None else points:
            if point.name in disabled:
                self.failures.append(Failure(point.name, "disabled by POLYHAL_DISABLE"))
                continue
            try:
                self._load(point)
            except Exception as error:  # a plug-in may raise anything; it is reported and hides no other
                self.failures.append(Failure(f"entry point {point.name} = {point.value}", describe(error)))

    def _load(self, point: EntryPoint) -> None:
        plugin = point.load()
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(HookSpecs)
        manager.register(plugin, point.name)
        manager.check_pending()
        offers = manager.hook.polyhal_backends()
        if not offers:
            raise TypeError(f"{point.value} has no function polyhal_backends marked with hookimpl")
        for spec in offers[0]:
            self.add(spec)
        self.sources.append((f"{point.name} = {point.value}", point.dist.name if point.dist else ""))

    def add(self, spec: BackendSpec) -> None:
        """Register one backend. Raises ValueError for a name that is taken or an api_version that is not ours."""
        if spec.api_version != API_VERSION:
            raise ValueError(
                f"backend {spec.name!r} is written for contract version {spec.api_version}; this Polyhal has {API_VERSION}"
            )
        if spec.name in self.backends:
            raise ValueError(f"a backend named {spec.name!r} is registered already")
        self.backends[spec.name] = spec

    def probe(self, name: str) -> list[Candidate]:
        """The devices of backend `name`; empty where probing failed, with the reason in `failures`."""
        if name not in self._probed:
            spec = self.backends[name]
            try:
                infos = _callable(spec.probe)()
                self._probed[name] = [Candidate(spec, info) for info in infos]
            except Exception as error:  # drivers raise anything; it is reported
                self._probed[name] = []
                self.failures.append(Failure(f"backend {name}", describe(error)))
        return self._probed[name]

    def candidates(self, *, hidden: bool = False) -> list[Candidate]:
        """Every device of every backend, best first; one physical card that two backends see stays in the list twice."""
        found = [c for name, spec in self.backends.items() if hidden or not spec.hidden for c in self.probe(name)]
        return sorted(found, key=self.rank)

    def rank(self, candidate: Candidate) -> tuple[Any, ...]:
        """The order of preference: kind of device, then priority of its backend, then memory."""
        info = candidate.info
        return (_TYPE_RANK[info.type], -candidate.backend.priority, -info.memory)

    def explain_default(self) -> str:
        """Which device is the default and why, in one sentence."""
        named = config.default_device()
        device = self.open(None)
        if named:
            return f"{device.name}, because POLYHAL_DEVICE={named}"
        kind = device.type.value.replace("_", " ").upper().replace("INTEGRATED GPU", "integrated GPU")
        others = [c for c in self.candidates() if c.name != device.name]
        if not others:
            return f"{device.name} ({device.info.name}), the only device found"
        better = {DeviceType.CPU: "no GPU was found, and it is the fastest CPU backend by priority"}
        return f"{device.name} ({device.info.name}): {better.get(device.type, f'the best {kind} of {len(others) + 1} devices')}"

    def open(self, name: str | None) -> Device:
        """The device called `name`, or the default for None. Raises DeviceUnavailableError."""
        if name is None:
            if self._default is None:
                named = config.default_device()
                self._default = self.open(named) if named else self._best(self.candidates(), "any device")
            return self._default
        if name in self._open:
            return self._open[name]
        head, _, selector = name.partition(":")
        if head in _SYNONYMS and head not in self.backends:
            wanted = _SYNONYMS[head]
            kind = [c for c in self.candidates() if c.info.type in wanted]
            if selector:
                if not selector.isdigit() or int(selector) >= len(kind):
                    raise self._unavailable(name, f"there are {len(kind)} devices of this kind")
                kind = [kind[int(selector)]]
            device = self._best(kind, name)
        else:
            device = self._open_named(name, head, selector)
        self._open[name] = device
        return device

    def _open_named(self, name: str, head: str, selector: str) -> Device:
        spec = next((s for s in self.backends.values() if head == s.name or head in s.aliases), None)
        if spec is None:
            hint = f'; did you mean "{_FOREIGN[head]}"?' if head in _FOREIGN else ""
            known = ", ".join(sorted(n for n, s in self.backends.items() if not s.hidden))
            raise self._unavailable(name, f"no backend is called {head!r}; there are {known}, and cpu and gpu{hint}")
        if not selector:
            found = self.probe(spec.name)
            if not found:
                raise self._unavailable(name, "its backend found no device")
            return self._create(min(found, key=self.rank))
        match = next((c for c in self.probe(spec.name) if c.info.selector == selector), None)
        if match is not None:
            return self._create(match)
        return self._connect(f"{spec.name}:{selector}", spec, selector)

    def _best(self, found: Sequence[Candidate], name: str) -> Device:
        """Open the first candidate that can be opened."""
        for candidate in found:
            try:
                return self._create(candidate)
            except DeviceUnavailableError as error:
                self.failures.append(Failure(candidate.name, str(error)))
        raise self._unavailable(name, "none could be opened" if found else "none was found")

    def _create(self, candidate: Candidate) -> Device:
        return self._connect(candidate.name, candidate.backend, candidate.info.selector)

    def _connect(self, name: str, spec: BackendSpec, selector: str) -> Device:
        if name not in self._open:
            try:
                backend: ComputeBackend = _callable(spec.create)(selector)
            except Exception as error:  # drivers raise anything; the caller gets it with the list of candidates
                raise self._unavailable(name, describe(error)) from error
            canonical = f"{spec.name}:{backend.info.selector}" if backend.info.selector else spec.name
            if canonical not in self._open:
                self._open[canonical] = Device.opened(canonical, backend)
            self._open[name] = self._open[canonical]
        return self._open[name]

    def _unavailable(self, name: str, problem: str) -> DeviceUnavailableError:
        lines = [message(None, f"device {name!r} is not available: {problem}")]
        lines += [f"  found {c.name}: {c.info.name} ({c.info.type.value})" for c in self.candidates()]
        lines += [f"  {f.source}: {f.reason}" for f in self.failures]
        lines.append("run `polyhal doctor` for details")
        return DeviceUnavailableError("\n".join(lines))


def describe(error: BaseException) -> str:
    """An exception in one line: its type and what it says."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _callable(target: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


@functools.lru_cache(maxsize=1)
def _registry(pid: int) -> Registry:
    return Registry()


def registry() -> Registry:
    """The registry of this process; a forked child gets its own, because device handles do not survive a fork."""
    return _registry(os.getpid())
