"""What `polyhal doctor` reports: everything that decides which devices are seen and chosen, as plain data.

Nothing here changes anything, and nothing raises because of a broken driver: whatever fails becomes part of the report,
with what to do about it.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyhal.hal import config, dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.registry import Candidate, Failure, Registry, describe, registry

_DISTRIBUTIONS = (
    "polyhal",
    "numpy",
    "ml_dtypes",
    "pyopencl",
    "pocl-binary-distribution",
    "intel-opencl-rt",
    "wgpu",
    "safetensors",
    "tokenizers",
    "matplotlib",
)
"""What is worth knowing the version of: the framework, its drivers from PyPI and the packages behind extras."""
_FOREIGN_VARIABLES = (
    "OCL_ICD_",
    "OPENCL_",
    "PYOPENCL_",
    "POCL_",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "WGPU_",
    "VK_ICD_",
)
"""Beginnings of the names of other software's variables that change which devices are seen."""
_TOLERANCE = 1e-4
_SIZE = 256


@dataclass(frozen=True, slots=True)
class SelfTest:
    """A small computation compared with NumPy; `error` is the largest relative difference."""

    name: str
    passed: bool
    seconds: float
    """From the call to the result on the host, kernels already built."""
    first_seconds: float
    """The same for the first call, which builds the kernel or loads it from the cache."""
    error: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device; `problem` says why it could not be opened, and is empty where it could."""

    name: str
    info: dict[str, Any]
    capabilities: dict[str, Any]
    default: bool
    hidden: bool
    problem: str = ""
    tests: tuple[SelfTest, ...] = ()


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
    ours, unknown = _environment()  # before drivers are looked for, which sets some of these variables
    found = registry()
    candidates = found.candidates(hidden=hidden)
    default, reason = _default(found)
    devices = tuple(_device(found, c, default, tests) for c in candidates)
    failures = [f for f in dict.fromkeys(found.failures) if f.source not in {c.name for c in candidates}]
    return Report(
        system={
            "platform": platform.platform(),
            "machine": platform.machine(),
            "processors": str(os.cpu_count()),
            "python": f"{platform.python_version()} ({sys.executable})",
        },
        distributions={name: _version(name) for name in _DISTRIBUTIONS},
        entry_points=tuple(found.sources),
        backends=tuple(found.backends),
        driver_files=driver_files(),
        devices=devices,
        problems=tuple(_problem(f) for f in failures) + _missing(found, candidates),
        environment=ours,
        unknown_variables=unknown,
        cache=_cache(config.cache_dir()),
        default=default,
        default_reason=reason,
    )


def self_test(device: Device) -> tuple[SelfTest, ...]:
    """Add two vectors and multiply two matrices on `device`, and compare with NumPy."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((_SIZE, _SIZE), np.float32) for _ in range(2))
    return _check("a + b", "add", device, a, b, a + b), _check("a @ b", "matmul", device, a, b, a @ b)


def _check(name: str, op: str, device: Device, a: np.ndarray, b: np.ndarray, expected: np.ndarray) -> SelfTest:
    seconds: list[float] = []
    try:
        for _ in range(2):
            x, y = (dispatch.frontend.wrap(device, *device.upload(v, float32)) for v in (a, b))
            begin = time.perf_counter()
            got = device.download(FUNCTIONS[op](x, y).ref)
            seconds.append(time.perf_counter() - begin)
    except Exception as error:  # a driver may raise anything; the report is the place for it
        return SelfTest(name, False, 0.0, 0.0, problem=describe(error))
    difference = float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))
    passed = difference <= _TOLERANCE
    return SelfTest(
        name, passed, seconds[1], seconds[0], difference, "" if passed else "the result differs from NumPy's"
    )


def variables() -> dict[str, str]:
    """Every environment variable of `config` with what it does, taken from the functions that read them."""
    found = {}
    for name, function in vars(config).items():
        if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == config.__name__:
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
        reason = describe(error.__cause__) if error.__cause__ else str(error).splitlines()[0]
        return DeviceReport(name, info, {}, False, hidden, problem=reason)
    results = self_test(device) if tests and not hidden else ()
    return DeviceReport(name, info, device.capabilities.to_json(), device.name == default, hidden, tests=results)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _environment() -> tuple[dict[str, str], tuple[str, ...]]:
    known = variables()
    ours = {k: v for k, v in os.environ.items() if k in known or k.startswith(_FOREIGN_VARIABLES)}
    return dict(sorted(ours.items())), tuple(
        sorted(k for k in os.environ if k.startswith("POLYHAL_") and k not in known)
    )


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
    return Problem(failure.source, failure.reason, _fix(failure))


def _fix(failure: Failure) -> str:
    """What to do about a plug-in or backend that could not be used."""
    text = failure.reason.lower()
    if "polyhal_disable" in text:
        return f"remove {failure.source} from POLYHAL_DISABLE"
    if "opencl" in failure.source:
        if "modulenotfounderror" in text or "importerror" in text:
            return f"reinstall pyopencl (pip install --force-reinstall pyopencl), and {_opencl_driver()}"
        return _opencl_driver()
    if "wgpu" in failure.source:
        return "install wgpu (pip install 'polyhal[wgpu]') and " + _vulkan_driver()
    if failure.source.startswith("entry point"):
        return "update or uninstall the distribution that provides this plug-in"
    return "see the reason; the other backends are not affected"


def _missing(found: Registry, candidates: list[Candidate]) -> tuple[Problem, ...]:
    """Advice for a machine on which only the reference backend was found."""
    if any(c.backend.name != "numpy" and not c.backend.hidden for c in candidates):
        return ()
    return (
        Problem(
            "devices",
            "only the NumPy reference device was found, which is the slowest",
            f"{_opencl_driver()}; or, for GPUs without an OpenCL driver, install polyhal[wgpu] and {_vulkan_driver()}",
        ),
    )


def _opencl_driver() -> str:
    """Where an OpenCL driver comes from on this system."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    packaged = "pip install 'polyhal[cpu]' for a CPU device (Intel's runtime, any x86-64 processor)"
    if sys.platform == "darwin":
        return "macOS brings its own OpenCL: pip install --force-reinstall pyopencl to get the wheel that uses it"
    if sys.platform == "win32":
        maker = "install the current graphics driver of NVIDIA, AMD or Intel, which contains OpenCL"
        return f"{maker}; or {packaged}" if x86 else maker
    maker = (
        "install your GPU's driver (NVIDIA: the proprietary driver; AMD: rocm-opencl-runtime or mesa-opencl-icd; "
        "Intel: intel-opencl-icd)"
    )
    cpu = (
        f"{packaged}, or pip install pocl-binary-distribution (PoCL)"
        if x86
        else "the package pocl-opencl-icd for a CPU device"
    )
    return f"{maker}; or {cpu}"


def _vulkan_driver() -> str:
    if sys.platform == "darwin":
        return "nothing else: macOS brings Metal"
    if sys.platform == "win32":
        return "a current graphics driver, which contains Direct3D 12 and Vulkan"
    return "a Vulkan driver (Debian and Ubuntu: mesa-vulkan-drivers and libvulkan1)"
