"""Finding backends by entry point, asking them for their devices, and choosing among these.

Each entry point loads on its own, so that a broken plug-in is recorded and hides no other.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.device import Device
from polyhal.hal.discovery import plugins, probing, ranking
from polyhal.hal.discovery.benchmark_cache import Measure, Speeds
from polyhal.hal.discovery.plugins import UNKNOWN, Failure, Origin, PluginError, describe
from polyhal.hal.discovery.probing import Candidate
from polyhal.hal.discovery.validation import admit
from polyhal.hal.errors import DeviceUnavailableError, message
from polyhal.hal.hookspecs import ENTRY_POINT_GROUP, BackendSpec
from polyhal.hal.protocol import ComputeBackend
from polyhal.hal.settings import env

_SYNONYMS: dict[str, tuple[DeviceType, ...]] = {
    "cpu": (DeviceType.CPU,),
    "gpu": (DeviceType.GPU, DeviceType.INTEGRATED_GPU),
}
"""Names that stand for the best device of a kind, on whatever backend; `plugins.RESERVED` keeps them free."""

_FOREIGN = {"cuda": "gpu", "mps": "gpu", "rocm": "gpu", "xpu": "gpu"}
"""What users of other frameworks type, and what to suggest."""


class Registry:
    """The backends of this process, their devices and the devices that are open.

    `measure` finds the speed of a device; by default in a process of its own.
    """

    def __init__(self, points: Sequence[EntryPoint] | None = None, *, measure: Measure | None = None) -> None:
        self.failures: list[Failure] = []
        self.sources: list[tuple[str, str]] = []
        """(entry point, distribution) of everything that loaded, for `doctor`."""
        self.backends: dict[str, BackendSpec] = {}
        self.origins: dict[str, Origin] = {}
        """Where each backend comes from."""
        self.speeds = Speeds(measure, self.origins)
        self._aliases: dict[str, str] = {}
        self._probed: dict[str, list[Candidate]] = {}
        self._open: dict[str, Device] = {}
        self._default: Device | None = None
        for point in _installed() if points is None else points:
            self._load(point)

    def _load(self, point: EntryPoint) -> None:
        """Register what an entry point offers, and record what is wrong with it."""
        where = plugins.origin(point)
        source = f"entry point {where.point}"
        if point.name in env.disabled_backends():
            self.failures.append(Failure(point.name, "disabled by POLYHAL_DISABLE"))
            return
        try:
            offers = plugins.load(point)
        except PluginError as error:
            self.failures.append(plugins.failure(source, error))
            return
        for spec in offers:
            try:
                self.add(spec, where)
            except PluginError as error:
                fix = error.fix or f"update or uninstall {where.distribution or point.value}"
                self.failures.append(Failure(source, describe(error), fix))
        self.sources.append((where.point, where.distribution))

    def add(self, spec: BackendSpec, where: Origin = UNKNOWN) -> None:
        """Register one backend.

        Raises PluginError, a ValueError, for a spec that is not well formed, a name that is taken or an api_version that is
        not ours. An alias that is taken is recorded and ignored.
        """
        plugins.checked(spec)
        if spec.name in env.disabled_backends():
            self.failures.append(Failure(spec.name, "disabled by POLYHAL_DISABLE"))
            return
        if spec.name in self.backends:
            owner = self.origins[spec.name]
            raise PluginError(
                f"a backend named {spec.name!r} is registered already, by {owner}",
                f"uninstall this plug-in or {owner.distribution or owner.point}",
            )
        self.backends[spec.name] = spec
        self.origins[spec.name] = where
        if spec.name in self._aliases:  # names win over aliases, whatever came first
            self._taken(self._aliases.pop(spec.name), spec.name, spec.name)
        for alias in spec.aliases:
            owner_name = alias if alias in self.backends else self._aliases.setdefault(alias, spec.name)
            if owner_name != spec.name:
                self._taken(spec.name, alias, owner_name)

    def _taken(self, name: str, alias: str, owner: str) -> None:
        reason = f"its alias {alias!r} is taken by the backend {owner!r}"
        self.failures.append(Failure(f"backend {name}", reason, f"call it {name!r}"))

    def probe(self, name: str) -> list[Candidate]:
        """The devices of backend `name`; empty where probing failed, with the reason in `failures`."""
        if name not in self._probed:
            self._probed[name], failures = probing.probe(self.backends[name])
            self.failures += failures
        return self._probed[name]

    def candidates(self, *, hidden: bool = False) -> list[Candidate]:
        """Every device of every backend, best first by what is known; a card that two backends see is there twice."""
        found = [c for name, spec in self.backends.items() if hidden or not spec.hidden for c in self.probe(name)]
        return ranking.order(found, self.speeds.known)

    def measure(self) -> str:
        """Measure the speed of every device again, whatever was remembered. Returns why not; empty where it was."""
        self.speeds.ensure(self.candidates(), anew=True)
        self._default = None
        return self.speeds.refusal

    def explain_default(self) -> str:
        """Which device is the default and why, in one sentence."""
        named = env.default_device()
        device = self.open(None)
        if named:
            return f"{device.name}, because POLYHAL_DEVICE={named}"
        found = self.candidates()
        chosen = next((c for c in found if c.name == device.name), None)
        if chosen is None:  # it calls itself something else than it was listed as
            return f"{device.name} ({device.info.name})"
        refused = [f.source for f in self.failures if f.source in {c.name for c in found}]
        text = ranking.reason(chosen, found, self.speeds, refused)
        refusal = self.speeds.refusal
        return f"{chosen.name} ({device.info.name}): {text}" + (f" (not measured: {refusal})" if refusal else "")

    def open(self, name: str | None) -> Device:
        """The device called `name`, or the default for None. Raises DeviceUnavailableError."""
        if name is None:
            if self._default is None:
                named = env.default_device()
                self._default = (
                    self.open(named) if named else self._best(self._preferred(self.candidates()), "any device")
                )
            return self._default
        if name in self._open:
            return self._open[name]
        head, _, selector = name.partition(":")
        device = self._open_kind(name, head, selector) if head in _SYNONYMS else self._open_named(name, head, selector)
        self._open[name] = device
        return device

    def _open_kind(self, name: str, kind: str, selector: str) -> Device:
        """The best device of a kind, or the card of that number."""
        found = [c for c in self.candidates() if probing.kind(c.info) in _SYNONYMS[kind]]
        if not selector:
            return self._best(self._preferred(found), name)
        numbered = ranking.cards(list(self._preferred(found)))
        if not selector.isdigit() or int(selector) >= len(numbered):
            raise self._unavailable(name, f"there are {len(numbered)} devices of this kind")
        return self._best(numbered[int(selector)], name)

    def _open_named(self, name: str, head: str, selector: str) -> Device:
        spec = self.backends.get(head) or self.backends.get(self._aliases.get(head, ""))
        if spec is None:
            hint = f'; did you mean "{_FOREIGN[head]}"?' if head in _FOREIGN else ""
            known = ", ".join(sorted(n for n, s in self.backends.items() if not s.hidden))
            raise self._unavailable(name, f"no backend is called {head!r}; there are {known}, and cpu and gpu{hint}")
        if not selector:
            first = next(self._preferred(self.probe(spec.name)), None)
            if first is None:
                raise self._unavailable(name, "its backend found no device")
            return self._create(first)
        match = next((c for c in self.probe(spec.name) if c.info.selector == selector), None)
        if match is not None:
            return self._create(match)
        return self._connect(f"{spec.name}:{selector}", spec, selector)

    def _preferred(self, found: Iterable[Candidate]) -> Iterator[Candidate]:
        """The candidates, best first. Those of one kind are measured when the first of them is asked for, if they differ."""
        for _, group in itertools.groupby(sorted(found, key=ranking.type_rank), ranking.type_rank):
            rivals = list(group)
            if self.speeds.differ(rivals):
                self.speeds.ensure(rivals)
            yield from ranking.order(rivals, self.speeds.known)

    def _best(self, found: Iterable[Candidate], name: str) -> Device:
        """Open the first candidate that can be opened."""
        candidate = None
        for candidate in found:
            try:
                return self._create(candidate)
            except DeviceUnavailableError as error:
                cause = error.__cause__ or error
                self.failures.append(plugins.failure(candidate.name, cause))
        raise self._unavailable(name, "none could be opened" if candidate else "none was found")

    def _create(self, candidate: Candidate) -> Device:
        return self._connect(candidate.name, candidate.backend, candidate.info.selector)

    def _connect(self, name: str, spec: BackendSpec, selector: str) -> Device:
        if name not in self._open:
            try:
                backend: ComputeBackend = probing.target(spec.create)(selector)
                admit(backend, spec)
            except (Exception, SystemExit) as error:  # drivers raise anything; the caller gets it with all candidates
                raise self._unavailable(name, describe(error)) from error
            canonical = probing.canonical(spec, backend.info)
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


def _installed() -> list[EntryPoint]:
    """The entry points of this environment, ours first, so that no stranger takes a name from us."""
    return sorted(
        entry_points(group=ENTRY_POINT_GROUP),
        key=lambda p: (p.dist is None or p.dist.name != "polyhal", p.dist.name if p.dist else "", p.name),
    )


@functools.lru_cache(maxsize=1)
def _registry(pid: int) -> Registry:
    return Registry()


def registry() -> Registry:
    """The registry of this process; a forked child gets its own, because device handles do not survive a fork."""
    return _registry(os.getpid())
