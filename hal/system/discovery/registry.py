"""The registry: finds backends by entry point, lists their devices, and chooses among them.

Each entry point is loaded separately: a broken plug-in is recorded and does not affect others.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.execution.executor import structure
from polyhal.hal.core.fork import process_devices
from polyhal.hal.core.plugins import entry_points, probing
from polyhal.hal.core.plugins.entry_points import UNKNOWN, Failure, PluginError, PluginOrigin, describe
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.core.plugins.trial import TrialOutcome
from polyhal.hal.core.plugins.trial_cache import Plugin, TrialCache, can_store
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.log import logger
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError, message
from polyhal.hal.hookspecs import ENTRY_POINT_GROUP, BackendSpec
from polyhal.hal.protocol import ComputeBackend
from polyhal.hal.system.discovery import next_step, ranking
from polyhal.hal.system.discovery.benchmark_cache import BenchmarkCache, RunBenchmark
from polyhal.hal.system.discovery.validation import validate_backend

_LOG = logger("discovery")

_SYNONYMS: dict[str, tuple[DeviceType, ...]] = {
    "cpu": (DeviceType.CPU,),
    "gpu": (DeviceType.GPU, DeviceType.INTEGRATED_GPU),
}
"""Names of the best device of a type, on any backend; `entry_points.RESERVED` lists them too."""

_FOREIGN = {"cuda": "gpu", "mps": "gpu", "rocm": "gpu", "xpu": "gpu"}
"""Names from other frameworks, and the name to suggest where a backend of that name has no device."""


class Registry:
    """The backends of this process, their devices and the open devices.

    `run_benchmark` benchmarks a device; by default in a separate process.
    """

    def __init__(
        self, points: Sequence[EntryPoint] | None = None, *, run_benchmark: RunBenchmark | None = None
    ) -> None:
        self.failures: list[Failure] = []
        self.sources: list[tuple[str, str]] = []
        """(entry point, distribution) of each entry point that loaded, for `doctor`."""
        self.backends: dict[str, BackendSpec] = {}
        self.origins: dict[str, PluginOrigin] = {}
        self.benchmarks = BenchmarkCache(run_benchmark, self.origins)
        self._aliases: dict[str, str] = {}
        self._candidates: dict[str, list[Candidate]] = {}
        self._open: dict[str, Device] = {}
        self._default: Device | None = None
        self._warned: set[Failure] = set()
        self._noticed = False
        self._chosen = ""
        """Name of the default device, if set by the program."""
        self._inherited = ""
        """Name of the default device of the process that this one was forked from."""
        self.trials = TrialCache()
        self._points: dict[str, EntryPoint] = {}
        self._untrusted: dict[str, dict[str, str]] = {}
        """Problems of devices that ended or blocked their trial, by backend and selector."""
        found = entry_points.installed(ENTRY_POINT_GROUP) if points is None else points
        foreign = [p for p in found if not entry_points.is_ours(p) and p.name not in env.disabled_backends()]
        outcomes = self.trials.outcomes([Plugin(p) for p in foreign]) if foreign else []
        problems = {p: v for p, v in zip(foreign, outcomes, strict=True) if v.problem}
        for point in found:
            self._load(point, problems.get(point))
        self._log_failures(0)

    def _load(self, point: EntryPoint, outcome: TrialOutcome | None) -> None:
        """Register the backends of an entry point, and record its failures. `outcome` is the problem of its trial."""
        origin = entry_points.origin(point)
        source = f"entry point {origin.point}"
        if point.name in env.disabled_backends():
            self.failures.append(Failure(point.name, "disabled by POLYHAL_DISABLE"))
            return
        if outcome is not None:
            self.failures.append(Failure(source, _of_package(origin, outcome.problem), outcome.fix, unexpected=True))
            return
        try:
            specs = entry_points.load(point)
        except PluginError as error:
            self.failures.append(entry_points.failure(source, error))
            return
        for spec in specs:
            try:
                self.add(spec, origin)
                self._points[spec.name] = point
            except PluginError as error:
                fix = error.fix or f"update or uninstall {origin.distribution or point.value}"
                self.failures.append(Failure(source, describe(error), fix))
        self.sources.append((origin.point, origin.distribution))

    def add(self, spec: BackendSpec, origin: PluginOrigin = UNKNOWN) -> None:
        """Register one backend.

        Raises PluginError, a ValueError, for a malformed spec, a name that is taken or an unsupported api_version. An
        alias that is taken is recorded and ignored.
        """
        entry_points.validate_spec(spec)
        if spec.name in env.disabled_backends():
            self.failures.append(Failure(spec.name, "disabled by POLYHAL_DISABLE"))
            return
        if spec.name in self.backends:
            owner = self.origins[spec.name]
            raise PluginError(
                f"a backend named {spec.name!r} is already registered by {owner}",
                f"uninstall this plug-in or {owner.distribution or owner.point}",
            )
        _LOG.debug("backend %s of %s is registered", spec.name, origin.distribution or origin.point or "this program")
        self.backends[spec.name] = spec
        self.origins[spec.name] = origin
        if spec.name in self._aliases:  # names take precedence over aliases, in any order of registration
            self._record_taken_alias(self._aliases.pop(spec.name), spec.name, spec.name)
        for alias in spec.aliases:
            owner_name = alias if alias in self.backends else self._aliases.setdefault(alias, spec.name)
            if owner_name != spec.name:
                self._record_taken_alias(spec.name, alias, owner_name)

    def _record_taken_alias(self, name: str, alias: str, owner: str) -> None:
        reason = f"its alias {alias!r} is taken by the backend {owner!r}"
        self.failures.append(Failure(f"backend {name}", reason, f"call it {name!r}"))

    def _log_failures(self, first: int) -> None:
        """Log the failures from a position of the list to its end."""
        for failure in self.failures[first:]:
            _LOG.info("%s: %s", failure.source, failure.reason)

    def backend(self, name: str) -> BackendSpec | None:
        """Return the backend with that name or alias; None if there is none."""
        return self.backends.get(name) or self.backends.get(self._aliases.get(name, ""))

    def knows(self, name: str) -> bool:
        """Return whether a name is a backend, a type of device, or a name from another framework."""
        head = name.partition(":")[0]
        return head in _SYNONYMS or head in _FOREIGN or self.backend(head) is not None

    def probe(self, name: str) -> list[Candidate]:
        """Return the devices of backend `name`; empty if probing failed, with the reason in `failures`."""
        if name not in self._candidates:
            self._probe_all([name])
        return self._candidates[name]

    def _probe_all(self, names: Sequence[str]) -> None:
        """Probe the backends that pass their trial. A single process tries all of them."""
        problems = self._try(names)
        for name in names:
            failed = problems.get(name, TrialOutcome())
            self._untrusted[name] = failed.devices
            if failed.problem:
                reason = _of_package(self.origins[name], failed.problem)
                self._candidates[name] = []
                failures = [Failure(f"backend {name}", reason, failed.fix, unexpected=True)]
            else:
                self._candidates[name], failures = probing.probe(self.backends[name])
            self.failures += [f if f.fix else replace(f, fix=self.remedy(name)) for f in failures]
            self._log_failures(len(self.failures) - len(failures))
            _LOG.debug("%s: %s", name, ", ".join(c.name for c in self._candidates[name]) or "no devices")

    def remedy(self, name: str) -> str:
        """Return the fix for a failure of a plug-in without one, which names its package; empty for built-in backends."""
        point, origin = self._points.get(name), self.origins[name]
        is_foreign = origin.distribution and not (point is not None and entry_points.is_ours(point))
        return f"update or uninstall {origin.distribution}" if is_foreign else ""

    def _try(self, names: Sequence[str]) -> dict[str, TrialOutcome]:
        """Return the outcomes of trials of plug-ins of other packages, and of Polyhal's backends with a driver."""
        tried = []
        for name in names:
            spec, point = self.backends[name], self._points.get(name)
            if point is None or (entry_points.is_ours(point) and not (spec.environment and can_store())):
                continue
            tried.append(Plugin(point, name, tuple(spec.environment)))
        outcomes = self.trials.outcomes(tried) if tried else []
        return {p.backend: v for p, v in zip(tried, outcomes, strict=True)}

    def candidates(self, *, hidden: bool = False) -> list[Candidate]:
        """Return every device of every backend, ranked by the results so far; a card found by two backends occurs twice."""
        names = [name for name, spec in self.backends.items() if hidden or not spec.hidden]
        self._probe_all([name for name in names if name not in self._candidates])
        candidates = [c for name in names for c in self.probe(name)]
        return ranking.rank(candidates, self.benchmarks.lookup)

    def refresh_benchmarks(self) -> str:
        """Benchmark every device again, ignoring the cache. Returns the reason if that was skipped; empty if it was not."""
        self.benchmarks.ensure(ranking.in_order(self.candidates()), refresh=True)
        self.set_default(None)
        return self.benchmarks.skipped

    def explain_default(self) -> str:
        """Return which device is the default and why, in one sentence."""
        requested = env.default_device()
        device = self.open(None)
        if requested:
            return f"{device.name}, because POLYHAL_DEVICE={requested}"
        candidates = self.candidates()
        chosen = next((c for c in candidates if c.name == device.name), None)
        if chosen is None:  # its backend reports another name than when it was probed
            return f"{device.name} ({device.info.name})"
        names = {c.name for c in candidates}
        unopened = [f.source for f in self.failures if f.source in names]
        text = ranking.explain_choice(chosen, candidates, self.benchmarks, unopened)
        skipped = self.benchmarks.skipped
        return f"{chosen.name} ({device.info.name}): {text}" + (f" (not measured: {skipped})" if skipped else "")

    def open(self, name: str | None) -> Device:
        """Return the device called `name`, or the default for None. Raises DeviceUnavailableError."""
        if name is None:
            if self._default is None or self._default.is_lost:
                self._forget_lost()
                requested = self._chosen or env.default_device() or self._inherited
                self._default = self.open(requested) if requested else self._open_best(self._best_first(), "any device")
                if not requested:
                    self._warn_of_failures(self._default)
                    self._print_notice()
            return self._default
        default = self._requested_default() if name in _SYNONYMS else None
        if default is not None and probing.hardware_type(default.info) in _SYNONYMS[name]:
            return default
        if name in self._open and not self._open[name].is_lost:
            return self._open[name]
        self._forget_lost()
        head, _, selector = name.partition(":")
        device = self._open_type(name, head, selector) if head in _SYNONYMS else self._open_named(name, head, selector)
        if name in _SYNONYMS:
            self._warn_of_failures(device)
        self._open[name] = device
        return device

    def _requested_default(self) -> Device | None:
        """Return the default device if the program or POLYHAL_DEVICE chose it: the name of its type then means this device."""
        requested = self._chosen or env.default_device()
        return self.open(None) if requested and requested not in _SYNONYMS else None

    def _warn_of_failures(self, device: Device) -> None:
        """Warn once of installed drivers and plug-ins that fail, because they may be faster than the chosen device."""
        unexpected = [f for f in dict.fromkeys(self.failures) if f.unexpected and f not in self._warned]
        self._warned.update(unexpected)
        if unexpected:
            problems = "; ".join(f"{f.source}: {f.reason}" + (f" ({f.fix})" if f.fix else "") for f in unexpected)
            text = f"{device.name} was chosen among the working devices; others fail: {problems}"
            warnings.warn(
                message(None, text, fix="POLYHAL_DEVICE=NAME chooses a device without this warning"), stacklevel=4
            )

    def _print_notice(self) -> None:
        """Print the next step, once, if the reference was chosen because no other device was found."""
        line = "" if self._noticed else next_step.notice(self.candidates())
        self._noticed = True
        if line:
            print(f"polyhal: {line}", file=sys.stderr, flush=True)

    def set_default(self, device: Device | str | None) -> None:
        """Make `device` the default of this process; None chooses again. Raises DeviceUnavailableError."""
        before = self._default
        self._default = self.open(device) if isinstance(device, str) else device
        if self._default is not before:
            structure.changed()  # captured steps may make tensors on it
        self._chosen = "" if self._default is None else self._default.name
        self._inherited = ""

    @property
    def chosen_default(self) -> Device | None:
        """The default device if the program set it."""
        return self._default if self._chosen else None

    def inherit(self, parent: Registry) -> None:
        """Take the default device of a parent process for that of this one, rather than another that can be opened here."""
        self._chosen = parent._chosen
        self._inherited = parent._inherited if parent._default is None else parent._default.name

    def opened(self) -> list[Device]:
        """Return the devices that are open, each once."""
        return list({id(device): device for device in self._open.values()}.values())

    def _forget_lost(self) -> None:
        """Drop lost devices, so that their names open new ones."""
        self._open = {name: device for name, device in self._open.items() if not device.is_lost}

    def _open_type(self, name: str, synonym: str, selector: str) -> Device:
        """Open the best device of a type of hardware, or the card with that number."""
        candidates = [c for c in self.candidates() if probing.hardware_type(c.info) in _SYNONYMS[synonym]]
        if not selector:
            return self._open_best(self._best_first(candidates), name)
        cards = ranking.group_by_card(self._best_first(candidates))
        if not selector.isdigit() or int(selector) >= len(cards):
            raise self._unavailable(name, f"there are {len(cards)} devices of this kind")
        return self._open_best(cards[int(selector)], name)

    def _open_named(self, name: str, head: str, selector: str) -> Device:
        spec = self.backend(head)
        hint = f'; did you mean "{_FOREIGN[head]}"?' if head in _FOREIGN else ""
        if spec is None:
            known = ", ".join([*sorted(n for n, s in self.backends.items() if not s.hidden), *_SYNONYMS])
            raise self._unavailable(name, f"unknown backend {head!r}; expected one of {known}{hint}")
        if not selector:
            found = self._best_first(self.probe(spec.name))
            if not found:
                raise self._unavailable(name, f"its backend found no device{hint}")
            return self._create(found[0])
        match = next((c for c in self.probe(spec.name) if c.info.selector == selector), None)
        if match is not None:
            return self._create(match)
        return self._connect(f"{spec.name}:{selector}", spec, selector)

    def _best_first(self, candidates: Iterable[Candidate] | None = None) -> list[Candidate]:
        """Return the candidates (by default all), best first. Benchmarks them if they can differ in speed."""
        rivals = ranking.in_order(self.candidates() if candidates is None else candidates)
        # Hidden backends are for tests and teaching: their speed is meaningless.
        if not all(c.backend.hidden for c in rivals) and self.benchmarks.differ(rivals):
            self.benchmarks.ensure(rivals)
        return ranking.rank(rivals, self.benchmarks.lookup)

    def _open_best(self, candidates: Iterable[Candidate], name: str) -> Device:
        """Open the first candidate that can be opened."""
        candidate = None
        for candidate in candidates:
            try:
                return self._create(candidate)
            except DeviceUnavailableError as error:
                cause = error.__cause__ or error
                self.failures.append(entry_points.failure(candidate.name, cause))
                self._log_failures(-1)
        raise self._unavailable(name, "none could be opened" if candidate else "none was found")

    def _create(self, candidate: Candidate) -> Device:
        return self._connect(candidate.name, candidate.backend, candidate.info.selector)

    def _connect(self, name: str, spec: BackendSpec, selector: str) -> Device:
        if name not in self._open:
            if not spec.hidden and (refusal := process_devices().refusal(spec.name)):
                raise self._unavailable(name, refusal)
            if problem := self._untrusted.get(spec.name, {}).get(selector):
                fix = entry_points.crash_fix(f"POLYHAL_DISABLE={spec.name}")
                error = PluginError(_of_package(self.origins[spec.name], problem), fix)
                raise self._unavailable(name, describe(error)) from error
            try:
                backend: ComputeBackend = probing.resolve(spec.create)(selector)
                validate_backend(backend, spec)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # drivers raise anything; the error lists all candidates
                raise self._unavailable(name, describe(error)) from error
            canonical = probing.canonical_name(spec, backend.info)
            if canonical not in self._open:
                self._open[canonical] = Device.opened(canonical, backend, self.origins[spec.name])
                _LOG.info("device %s is open: %s, %s", canonical, backend.info.name, backend.info.driver)
            self._open[name] = self._open[canonical]
        return self._open[name]

    def _unavailable(self, name: str, problem: str) -> DeviceUnavailableError:
        lines = [message(None, f"device {name!r} is not available: {problem}")]
        lines += [f"  found {c.name}: {c.info.name} ({c.info.type.value})" for c in self.candidates()]
        lines += [f"  {f.source}: {f.reason}" for f in self.failures]
        lines.append("run `polyhal doctor` for details")
        return DeviceUnavailableError("\n".join(lines))


def _of_package(origin: PluginOrigin, problem: str) -> str:
    """Return a problem of a plug-in with the name of its package, which a user can update or remove."""
    return f"{problem} (package {origin})" if origin.distribution else problem


_LATEST: list[Registry] = []
"""The registry that was made last: in a forked child, at first the parent's."""


@functools.lru_cache(maxsize=1)
def _registry(pid: int) -> Registry:
    made = Registry()
    if _LATEST:
        made.inherit(_LATEST.pop())
    _LATEST.append(made)
    return made


def registry() -> Registry:
    """Return the registry of this process. A forked child has a new one, because device handles do not survive a fork, with
    the parent's default device.
    """
    return _registry(os.getpid())
