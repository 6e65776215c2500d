"""What `polyhal doctor` reports: everything that decides which devices are seen and chosen, as plain data.

Nothing here changes anything, and nothing raises because of a broken driver: whatever fails becomes part of the report,
with what to do about it.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import itertools
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyhal.hal.diagnostics.selftest import SelfTest, self_test
from polyhal.hal.discovery.plugins import Failure, describe, fix
from polyhal.hal.discovery.probing import Candidate
from polyhal.hal.discovery.registry import Registry, registry
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.kernels import quarantine
from polyhal.hal.settings import env

_UNKNOWN_FIX = "see the reason; the other devices are not affected"


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device; `problem` says why it could not be opened, and is empty where it could."""

    name: str
    info: dict[str, Any]
    capabilities: dict[str, Any]
    default: bool
    hidden: bool
    problem: str = ""
    fix: str = ""
    tests: tuple[SelfTest, ...] = ()
    speed: dict[str, Any] | None = None
    """The cached benchmark (see `polyhal.hal.discovery.benchmark_cache`) with `ratio`, times NumPy; None if there is none."""
    quarantined: tuple[str, ...] = ()
    """Kernels that are passed over because `polyhal verify` found that they fail, each with the reason."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was looked for in vain, and the fix."""

    source: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class DriverFile:
    """A registration of an OpenCL driver: the file, the library it names, and whether that exists (None: unknown)."""

    path: str
    library: str
    exists: bool | None


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder of compiled programs and measurements. `nbytes` counts what is in it."""

    path: str
    writable: bool
    files: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """The whole examination."""

    system: dict[str, str]
    distributions: dict[str, str]
    """Name to version; an empty version means not installed."""
    entry_points: tuple[tuple[str, str], ...]
    """(entry point, distribution) of every backend plug-in that loaded."""
    backends: tuple[str, ...]
    driver_files: tuple[DriverFile, ...]
    devices: tuple[DeviceReport, ...]
    problems: tuple[Problem, ...]
    environment: dict[str, str]
    """Variables that are set and change what is seen or chosen."""
    unknown_variables: tuple[str, ...]
    """Set variables that begin like ours but that nothing reads."""
    cache: Cache
    default: str
    default_reason: str

    @property
    def healthy(self) -> bool:
        """A default device exists, and every device that was tested computes correctly."""
        return bool(self.default) and all(t.passed for d in self.devices for t in d.tests)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "healthy": self.healthy}


def examine(*, tests: bool = True, hidden: bool = False) -> Report:
    """Look at everything. `tests` runs the self tests; `hidden` lists test backends too, which are never tested."""
    variables = dict(os.environ)  # before drivers are looked for, which sets some of them
    found = registry()
    candidates = found.candidates(hidden=hidden)
    default, reason = _default(found)
    devices = tuple(_device(found, c, default, tests) for c in candidates)
    ours, unknown = _environment(variables, tuple(itertools.chain(*(s.environment for s in found.backends.values()))))
    failures = [f for f in dict.fromkeys(found.failures) if f.source not in {c.name for c in candidates}]
    return Report(
        system={
            "platform": platform.platform(),
            "machine": platform.machine(),
            "processors": str(os.cpu_count()),
            "python": f"{platform.python_version()} ({sys.executable})",
        },
        distributions=_distributions(found),
        entry_points=tuple(found.sources),
        backends=tuple(found.backends),
        driver_files=driver_files(),
        devices=devices,
        problems=tuple(_problem(f) for f in failures) + _missing(found, candidates),
        environment=ours,
        unknown_variables=unknown,
        cache=_cache(env.cache_dir()),
        default=default,
        default_reason=reason,
    )


def variables() -> dict[str, str]:
    """Every environment variable of `config` with what it does, taken from the functions that read them."""
    found = {}
    for name, function in vars(env).items():
        if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == env.__name__:
            variable, _, meaning = (inspect.getdoc(function) or name).partition(": ")
            found[variable] = meaning
    return found


def driver_files() -> tuple[DriverFile, ...]:
    """The OpenCL drivers registered for the loader, on systems where it reads a folder of files for that."""
    if sys.platform in ("win32", "darwin"):
        return ()  # the registry and the operating system's own framework take the place of files
    named = os.environ.get("OCL_ICD_VENDORS")
    folder = Path(named) if named else Path("/etc/OpenCL/vendors")
    files = sorted(folder.glob("*.icd")) if folder.is_dir() else [folder] if folder.is_file() else []
    return tuple(_driver_file(f) for f in files)


def _driver_file(path: Path) -> DriverFile:
    try:
        library = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        return DriverFile(str(path), describe(error), False)
    # A bare name is looked up by the dynamic linker, along paths that only it knows.
    return DriverFile(str(path), library, Path(library).exists() if os.path.isabs(library) else None)


def _default(found: Registry) -> tuple[str, str]:
    try:
        return found.open(None).name, found.explain_default()
    except DeviceUnavailableError as error:
        return "", str(error).splitlines()[0]


def _device(found: Registry, candidate: Candidate, default: str, tests: bool) -> DeviceReport:
    name, info, hidden = candidate.name, candidate.info.to_json(), candidate.backend.hidden
    try:
        device = found.open(name)
    except DeviceUnavailableError as error:
        cause = error.__cause__ or error
        return DeviceReport(name, info, {}, False, hidden, problem=describe(cause), fix=fix(cause) or _UNKNOWN_FIX)
    results = self_test(device) if tests and not hidden else ()
    speed = found.benchmarks.lookup(candidate)
    return DeviceReport(
        name,
        info,
        device.capabilities.to_json(),
        device.name == default,
        hidden,
        tests=results,
        speed=None if speed is None else {**asdict(speed), "ratio": found.benchmarks.ratio(candidate)},
        quarantined=quarantine.load(device).lines(),
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _environment(given: Mapping[str, str], foreign: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables of ours and those that the backends name; and those that only look like ours."""
    known = variables()
    named = {k: v for k, v in given.items() if k in known or k.startswith(foreign)}
    return dict(sorted(named.items())), tuple(sorted(k for k in given if k.startswith("POLYHAL_") and k not in known))


def _distributions(found: Registry) -> dict[str, str]:
    """Versions of the framework, of what it asks for outside of development, and of every plug-in and what that asks for."""
    names = ["polyhal", *(o.distribution for o in found.origins.values() if o.distribution)]
    versions: dict[str, str] = {}
    for name in dict.fromkeys(names):
        versions[name] = _version(name)
        for requirement in _requirements(name):
            versions[requirement] = _version(requirement)
    return versions


def _requirements(name: str) -> list[str]:
    """The names of the distributions that one requires, extras for users included, in the order in which it says so."""
    try:
        listed = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for text in listed:
        requirement, _, marker = text.partition(";")
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        if match and match[0].lower() != name.lower() and not re.search(r"extra\s*==\s*['\"]dev['\"]", marker):
            found.append(match[0])
    return found


def _cache(folder: Path) -> Cache:
    files = nbytes = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                nbytes += os.stat(os.path.join(root, name)).st_size
            except OSError:  # another process has just replaced or removed it
                continue
            files += 1
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    return Cache(str(folder), os.access(nearest, os.W_OK), files, nbytes)


def _problem(failure: Failure) -> Problem:
    disabled = f"remove {failure.source} from POLYHAL_DISABLE" if "POLYHAL_DISABLE" in failure.reason else ""
    return Problem(failure.source, failure.reason, failure.fix or disabled or _UNKNOWN_FIX)


def _missing(found: Registry, candidates: Sequence[Candidate]) -> tuple[Problem, ...]:
    """Advice for a machine on which only the lowest backend in priority was found, the reference."""
    shown = [s for s in found.backends.values() if not s.hidden]
    last = min(shown, key=lambda s: s.priority, default=None)
    if any(c.backend is not last and not c.backend.hidden for c in candidates):
        return ()
    return (
        Problem(
            "devices",
            "only the reference device was found, which is the slowest" if candidates else "no device was found",
            "install your GPU's driver from its maker, and pip install 'polyhal[all]' for every backend and a CPU driver",
        ),
    )
