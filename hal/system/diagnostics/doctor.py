"""The report of `polyhal doctor`: everything that decides which devices are found and chosen, as plain data.

The examination changes nothing and never raises for a broken driver: each failure becomes an entry with its fix.
"""

from __future__ import annotations

import ctypes
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

from polyhal.hal.compile.op_plugins import op_plugins
from polyhal.hal.compile.planning import quarantine
from polyhal.hal.core.kernels.certified_units import HasUnits
from polyhal.hal.core.plugins.entry_points import Failure, describe, fix
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.pages import page
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.ops.lowering import OnHost
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.system.diagnostics.selftest import SelfTest, self_test
from polyhal.hal.system.discovery.next_step import next_step, only_reference
from polyhal.hal.system.discovery.registry import Registry, registry

_FOR_DEVELOPERS = re.compile(r"extra\s*==\s*['\"](dev|test)['\"]")
_UNKNOWN_FIX = "see the reason; the other devices are not affected"


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A device. `problem` is the reason why it could not be opened; empty if it was."""

    name: str
    info: dict[str, Any]
    capabilities: dict[str, Any]
    default: bool
    hidden: bool
    problem: str = ""
    fix: str = ""
    tests: tuple[SelfTest, ...] = ()
    speed: dict[str, Any] | None = None
    """Cached benchmark (see `polyhal.hal.system.discovery.benchmark_cache`), and `ratio`, its speed relative to NumPy's.

    None if the device was not measured.
    """
    quarantined: tuple[str, ...] = ()
    """Kernels that failed in `polyhal verify` and that the planner therefore skips, each with the reason."""
    units: tuple[str, ...] = ()
    """Units that require a certificate, each with its state (see `polyhal.hal.core.kernels.certified_units`)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A missing component or a failure, with the reason and the fix."""

    source: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class DriverFile:
    """A file that registers an OpenCL driver, and the library it names; `exists` is None for a library found by name."""

    path: str
    library: str
    exists: bool | None
    problem: str = ""
    """Error of the dynamic linker for a library that it cannot load, which OpenCL's loader skips silently."""


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder of compiled programs and measurements. `nbytes` is the total size of its files."""

    path: str
    writable: bool
    files: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `examine`."""

    system: dict[str, str]
    distributions: dict[str, str]
    """Versions by name; empty for a distribution that is not installed."""
    entry_points: tuple[tuple[str, str], ...]
    """(entry point, distribution) of every plug-in that loaded."""
    backends: tuple[str, ...]
    ops: dict[str, str]
    """Ops of installed packages, each with its package."""
    driver_files: tuple[DriverFile, ...]
    devices: tuple[DeviceReport, ...]
    problems: tuple[Problem, ...]
    environment: dict[str, str]
    """Variables that are set and affect which devices are found or chosen."""
    unknown_variables: tuple[str, ...]
    """Variables that are set and begin with POLYHAL_, but are never read."""
    cache: Cache
    default: str
    default_reason: str
    next_step: str = ""
    """Command that adds a faster device; empty if none is known."""

    @property
    def healthy(self) -> bool:
        """True if there is a default device, and every tested device computes correctly."""
        return bool(self.default) and all(t.passed for d in self.devices for t in d.tests)

    @property
    def pages(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of an observation and its section in the documentation."""
        opened = [d for d in self.devices if not d.problem]
        broken = len(opened) < len(self.devices) or not self.healthy
        noticed = {
            "the-opencl-library-or-driver-is-not-found": ("no OpenCL device was found", not self._has("opencl")),
            "cl_out_of_resources-and-its-relatives": ("a device cannot be opened, or computes wrong results", broken),
            "which-dtypes-there-are": (
                "a device has no float64",
                any("float64" not in d.capabilities["storage"] for d in opened),
            ),
            "why-an-op-runs-on-the-host": (
                f"{sum(op.strategy(OnHost) is not None for op in OPS)} of {len(OPS.names())} ops run on the host",
                any(d.info["backend"] != "numpy" for d in opened),
            ),
        }
        return tuple((text, page("troubleshooting", anchor)) for anchor, (text, holds) in noticed.items() if holds)

    @property
    def left_out(self) -> str:
        """Return a sentence about adapters that are only listed on request; empty if all are listed."""
        if env.opengl() or "wgpu" not in self.backends:
            return ""
        return "adapters that only OpenGL supports are not listed; POLYHAL_OPENGL=1 lists them"

    def _has(self, backend: str) -> bool:
        return any(d.info["backend"] == backend for d in self.devices)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {**asdict(self), "healthy": self.healthy}


def examine(*, tests: bool = True, hidden: bool = False) -> Report:
    """Examine the machine. `tests` runs self-tests; `hidden` also lists test backends, which are never tested."""
    environment = dict(os.environ)  # before drivers are discovered, which sets some variables
    known, ops = registry(), op_plugins()
    ops.load()
    candidates = known.candidates(hidden=hidden)
    default, reason = _default(known)
    devices = tuple(_device(known, c, default, tests) for c in candidates)
    prefixes = tuple(itertools.chain(*(s.environment for s in known.backends.values())))
    relevant, unknown = _environment(environment, prefixes)
    failures = [
        f for f in dict.fromkeys([*known.failures, *ops.failures]) if f.source not in {c.name for c in candidates}
    ]
    return Report(
        system={
            "platform": platform.platform(),
            "machine": platform.machine(),
            "processors": str(os.cpu_count()),
            "python": f"{platform.python_version()} ({sys.executable})",
        },
        distributions=distributions(known),
        entry_points=(*known.sources, *ops.sources),
        backends=tuple(known.backends),
        ops={name: str(ops.origins[name]) for name in ops.names()},
        driver_files=driver_files(),
        devices=devices,
        problems=tuple(_problem(f) for f in failures) + _missing(candidates),
        environment=relevant,
        unknown_variables=unknown,
        cache=_cache(env.cache_dir()),
        default=default,
        default_reason=reason,
        next_step=next_step(candidates),
    )


def variables() -> dict[str, str]:
    """Return all environment variables of Polyhal with their meaning, from the docstrings of the functions that read them."""
    meanings = {}
    for name, function in vars(env).items():
        if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == env.__name__:
            variable, _, meaning = (inspect.getdoc(function) or name).partition(": ")
            meanings[variable] = meaning
    return meanings


def driver_files() -> tuple[DriverFile, ...]:
    """Return the registrations of OpenCL drivers, on systems where the loader reads them from a folder."""
    if sys.platform in ("win32", "darwin"):
        return ()  # Windows has its registry, macOS a framework of the system
    named = os.environ.get("OCL_ICD_VENDORS")
    folder = Path(named) if named else Path("/etc/OpenCL/vendors")
    files = sorted(folder.glob("*.icd")) if folder.is_dir() else [folder] if folder.is_file() else []
    return tuple(_driver_file(f) for f in files)


def _driver_file(path: Path) -> DriverFile:
    try:
        library = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        return DriverFile(str(path), describe(error), False)
    # The dynamic linker looks up a bare name, on its own search path.
    exists = Path(library).exists() if os.path.isabs(library) else None
    return DriverFile(str(path), library, exists, "" if exists is False else _load_problem(library))


def _load_problem(library: str) -> str:
    """Load a library like OpenCL's loader. Return the dynamic linker's error; empty if it succeeds."""
    try:
        ctypes.CDLL(library, mode=os.RTLD_LAZY | os.RTLD_LOCAL)
    except OSError as error:
        return str(error)
    return ""


def _default(known: Registry) -> tuple[str, str]:
    """Return the name of the default device, empty if there is none, and the reason."""
    try:
        return known.open(None).name, known.explain_default()
    except DeviceUnavailableError as error:
        return "", str(error).splitlines()[0]


def _device(known: Registry, candidate: Candidate, default: str, tests: bool) -> DeviceReport:
    name, info, hidden = candidate.name, candidate.info.to_json(), candidate.backend.hidden
    try:
        return _examined(known, known.open(name), candidate, default, tests)
    except DeviceUnavailableError as error:
        cause = error.__cause__ or error
    except Exception as error:  # a backend may open and still raise anything
        cause = error
    advice = fix(cause) or known.remedy(candidate.backend.name) or _UNKNOWN_FIX
    return DeviceReport(name, info, {}, False, hidden, problem=describe(cause), fix=advice)


def _examined(known: Registry, device: Device, candidate: Candidate, default: str, tests: bool) -> DeviceReport:
    hidden = candidate.backend.hidden
    results = self_test(device) if tests and not hidden else ()
    speed = known.benchmarks.lookup(candidate)
    return DeviceReport(
        candidate.name,
        candidate.info.to_json(),
        device.capabilities.to_json(),
        device.name == default,
        hidden,
        tests=results,
        speed=None if speed is None else {**asdict(speed), "ratio": known.benchmarks.ratio(candidate)},
        quarantined=quarantine.load(device).lines(),
        units=device.backend.units.lines(device.name) if isinstance(device.backend, HasUnits) else (),
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _environment(environment: Mapping[str, str], prefixes: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Split off the variables of Polyhal and of the backends' drivers, and the unknown names with our prefix."""
    known = variables()
    relevant = {k: v for k, v in environment.items() if k in known or k.startswith(prefixes)}
    unknown = sorted(k for k in environment if k.startswith("POLYHAL_") and k not in known)
    return dict(sorted(relevant.items())), tuple(unknown)


def distributions(known: Registry) -> dict[str, str]:
    """Return the versions of the framework, all plug-ins and their requirements, except for development; empty if missing."""
    names = ["polyhal", *(o.distribution for o in known.origins.values() if o.distribution)]
    versions: dict[str, str] = {}
    for name in dict.fromkeys(names):
        versions[name] = _version(name)
        for requirement in _requirements(name):
            versions[requirement] = _version(requirement)
    return versions


def _requirements(name: str) -> list[str]:
    """Return the distributions required by a distribution, in declared order, with extras except for development and tests."""
    try:
        requirements = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    names = []
    for text in requirements:
        requirement, _, marker = text.partition(";")
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        if match and match[0].lower() != name.lower() and not _FOR_DEVELOPERS.search(marker):
            names.append(match[0])
    return names


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


def _missing(candidates: Sequence[Candidate]) -> tuple[Problem, ...]:
    """Return advice for a machine with only the reference device."""
    if not only_reference(candidates):
        return ()
    fix = next_step(candidates) or "install the current driver of your GPU's maker"
    found = "only the reference device was found, which is the slowest" if candidates else "no device was found"
    return (Problem("devices", found, fix),)
