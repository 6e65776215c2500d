"""Installable client drivers (ICD): make Intel's CPU runtime visible if it was installed as a Python package.

The wheel `intel-opencl-rt` contains the library but registers it under a path that does not exist. The loader reads the
folder named by OCL_ICD_VENDORS once, when a process lists its platforms for the first time, so the folder must be ready
before. The wheel of PoCL needs nothing: pyopencl's loader also searches its own folder.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import hashlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from polyhal.hal.core.settings import env, trust
from polyhal.hal.core.settings.atomic import replacing
from polyhal.hal.system.discovery.next_step import PROCESSOR_DRIVER

_OURS = "vendors-"
"""Prefix of folder names that `prepare` writes."""
_UNFINISHED = ".tmp"
"""Suffix of files that another process is still writing."""
_VARIABLE = "OCL_ICD_VENDORS"
_SYSTEM_FOLDER = Path("/etc/OpenCL/vendors")
PACKAGED = "Intel(R) OpenCL (package intel-opencl-rt)"
"""Name of the packaged driver if it cannot be loaded."""
_LOADED_FILES = Path("/proc/self/maps")
_LIBRARY = "intelocl64.dll" if sys.platform == "win32" else "libintelocl.so"


@dataclass(frozen=True, slots=True)
class DriverSetup:
    """Result of `prepare`."""

    folder: str = ""
    """The absolute path in OCL_ICD_VENDORS, if `prepare` set it or found that it lists the packaged driver."""
    note: str = ""
    """Why nothing was changed, or why a change may have no effect."""


def prepare() -> DriverSetup:
    """Make packaged drivers visible. Call it before platforms are listed; repeated calls are harmless."""
    library = packaged_library()
    if library is None:
        return DriverSetup(
            note=f"no packaged Intel runtime: `{PROCESSOR_DRIVER}` adds the fastest CPU device on x86-64"
        )
    named = os.environ.get(_VARIABLE, "")
    if named and not Path(named).is_dir():
        return DriverSetup(note=f"{_VARIABLE} names the single driver {named}; left as it is")
    inherited = Path(named) if named else None
    if inherited is not None and _OURS in inherited.name and not _is_intact(inherited):
        inherited = None  # another process wrote the folder, which was changed afterwards
    if inherited is not None and _lists(inherited, library):
        return DriverSetup(named)
    late = "pyopencl" in sys.modules
    note = "if this process listed OpenCL platforms before, the packaged driver stays invisible to it" if late else ""
    if sys.platform == "win32":
        # The loader of Windows takes a list of library files instead of a folder, in addition to the registry's
        # entries.
        files = [os.environ.get("OCL_ICD_FILENAMES", ""), str(library)]
        os.environ["OCL_ICD_FILENAMES"] = os.pathsep.join(filter(None, files))
        return DriverSetup(note=note)
    folder = _write_folder(_registrations(inherited or _SYSTEM_FOLDER, library))
    os.environ[_VARIABLE] = str(folder)
    return DriverSetup(str(folder), note)


def packaged_library() -> Path | None:
    """Return the library of the installed package `intel-opencl-rt`, or None."""
    try:
        files = importlib.metadata.files("intel-opencl-rt") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for entry in files:
        if entry.name == _LIBRARY:
            path = Path(str(entry.locate())).resolve()
            if path.is_file():
                return path
    return None


def is_packaged(platform: str) -> bool:
    """Return whether a platform is the packaged driver, by its name. Intel's driver for GPUs has another name."""
    return "intel" in platform.lower() and "graphics" not in platform.lower()


def load_problem() -> tuple[str, str] | None:
    """Return why the packaged library cannot be loaded into this process, and a remedy; None if it can or is missing.

    OpenCL's loader skips such a library silently.
    """
    library = packaged_library()
    if library is None or sys.platform == "win32":
        return None
    try:
        ctypes.CDLL(str(library), mode=os.RTLD_LAZY | os.RTLD_LOCAL)
    except OSError as error:
        problem = str(error)
    else:
        return None
    foreign = _foreign_library(library.parent)
    if not foreign:
        return f"{library} cannot be loaded: {problem}", 'reinstall it: pip install --force-reinstall "polyhal[cpu]"'
    return (
        f"{library} cannot be loaded: {problem}; the process has already loaded another {foreign.name}, {foreign}",
        "open a device before the package that brings this library is imported, as by polyhal.Device.default()",
    )


def _foreign_library(folder: Path) -> Path | None:
    """Return a loaded library from elsewhere with the name of a library in `folder`; None if there is no such library."""
    try:
        lines = _LOADED_FILES.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not on Linux
        return None
    ours = {f.name for f in folder.glob("*.so*")}
    for path in (Path(line.partition("/")[1] + line.partition("/")[2]) for line in lines if "/" in line):
        if path.name in ours and path.parent.resolve() != folder:
            return path
    return None


def _lists(folder: Path, library: Path) -> bool:
    return any(_target(f) == str(library) for f in folder.glob("*.icd"))


def _target(file: Path) -> str:
    """Return the library that a registration names; empty if it cannot be read."""
    try:
        name = trust.read_regular(file).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return str(Path(name).resolve()) if os.path.isabs(name) else name


def _registrations(existing: Path, library: Path) -> dict[str, str]:
    """Return the files of the new folder: the machine's own registrations and the packaged driver."""
    files = {}
    for file in sorted(existing.glob("*.icd")) if existing.is_dir() else []:
        target = _target(file)
        # The wheel's own registration names a path on the machine that built it.
        if target and (Path(target).name != _LIBRARY or Path(target).is_file()) and target != str(library):
            files[file.name] = target
    files["polyhal-intel-cpu.icd"] = str(library)
    return files


def _is_intact(folder: Path) -> bool:
    """Return whether a folder of `prepare` is unchanged: its name is a digest of its content."""
    if trust.distrust(folder):
        return False
    try:
        files = {f.name: trust.read_regular(f).decode() for f in folder.iterdir() if not f.name.endswith(_UNFINISHED)}
    except (OSError, UnicodeDecodeError):
        return False
    return folder.name.endswith(_digest(files))


def _digest(files: dict[str, str]) -> str:
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]


def _write_folder(files: dict[str, str]) -> Path:
    """Write a folder with exactly these files. Its name is a digest of them, so racing processes write equal bytes.

    The loader loads every library that the folder names, so no other user may have write access to it.
    """
    digest = _digest(files)
    for folder in (
        env.cache_dir() / "opencl" / f"{_OURS}{digest}",
        Path(tempfile.gettempdir()) / f"polyhal-{os.getuid()}-{_OURS}{digest}",
    ):
        with contextlib.suppress(OSError):
            _fill(folder, files)
            return folder
    folder = Path(tempfile.mkdtemp(prefix=f"polyhal-{_OURS}"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _fill(folder, files)
    return folder


def _fill(folder: Path, files: dict[str, str]) -> None:
    """Make a folder contain exactly these files. Raises OSError, also for a folder that others can write to."""
    if folder.is_symlink():
        raise PermissionError(errno.EACCES, "is a link", str(folder))
    trust.private_folder(folder)
    for entry in folder.iterdir():
        if entry.name not in files and not entry.name.endswith(_UNFINISHED):
            entry.unlink()
    for name, target in files.items():
        path = folder / name
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if not path.is_symlink() and trust.read_regular(path).decode() == target:
                continue
        with replacing(path, durable=False) as file:
            file.write(target.encode())
