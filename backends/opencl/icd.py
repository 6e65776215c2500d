"""Installable client drivers (ICD): makes Intel's CPU runtime visible if it was installed as a Python package.

The wheel `intel-opencl-rt` contains the library but registers it under a path that does not exist. The loader reads the folder
named by OCL_ICD_VENDORS once, when a process lists its platforms for the first time, so the folder must be ready before. The
wheel of PoCL needs nothing: pyopencl's loader looks beside itself as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from polyhal.hal.settings import env
from polyhal.hal.settings.atomic import replacing

_VARIABLE = "OCL_ICD_VENDORS"
_SYSTEM_FOLDER = Path("/etc/OpenCL/vendors")
_LIBRARY = "intelocl64.dll" if sys.platform == "win32" else "libintelocl.so"


@dataclass(frozen=True, slots=True)
class DriverSetup:
    """What `prepare` did."""

    folder: str = ""
    """The absolute path in OCL_ICD_VENDORS, if `prepare` set it or found that it lists the packaged driver."""
    note: str = ""
    """Why nothing was changed, or why a change may have no effect."""


def prepare() -> DriverSetup:
    """Make packaged drivers visible. Call it before platforms are listed; calling it again is harmless."""
    library = packaged_library()
    if library is None:
        return DriverSetup(note="no packaged Intel runtime: install polyhal[cpu] for the fastest CPU device on x86-64")
    named = os.environ.get(_VARIABLE, "")
    if named and not Path(named).is_dir():
        return DriverSetup(note=f"{_VARIABLE} names the single driver {named}; left as it is")
    if named and _lists(Path(named), library):
        return DriverSetup(named)
    late = "pyopencl" in sys.modules
    note = "if this process listed OpenCL platforms before, the packaged driver stays invisible to it" if late else ""
    if sys.platform == "win32":
        # The loader of Windows takes a list of library files instead of a folder, besides those in the registry.
        files = [os.environ.get("OCL_ICD_FILENAMES", ""), str(library)]
        os.environ["OCL_ICD_FILENAMES"] = os.pathsep.join(filter(None, files))
        return DriverSetup(note=note)
    folder = _write_folder(_registrations(Path(named) if named else _SYSTEM_FOLDER, library))
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


def _lists(folder: Path, library: Path) -> bool:
    return any(_target(f) == str(library) for f in folder.glob("*.icd"))


def _target(file: Path) -> str:
    """Return the library that a registration names; empty if it cannot be read."""
    try:
        name = file.read_text(encoding="utf-8").strip()
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


def _write_folder(files: dict[str, str]) -> Path:
    """Write a folder with exactly these files. Its name is a digest of them, so processes that race write equal bytes."""
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    folder = env.cache_dir() / "opencl" / f"vendors-{digest}"
    try:
        _fill(folder, files)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"polyhal-{os.getuid()}-vendors-{digest}"
        try:
            _fill(folder, files)
            if folder.stat().st_uid != os.getuid():
                raise PermissionError(f"{folder} belongs to another user")
        except OSError:
            folder = Path(tempfile.mkdtemp(prefix="polyhal-vendors-"))
            _fill(folder, files)
    return folder


def _fill(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, target in files.items():
        path = folder / name
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.read_text(encoding="utf-8") == target:
                continue
        with replacing(path, durable=False) as file:
            file.write(target.encode())
