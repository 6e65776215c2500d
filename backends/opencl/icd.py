"""Which OpenCL drivers are visible: those of the machine, and Intel's CPU runtime when it came with a Python package.

The wheel `intel-opencl-rt` brings the library but registers it under a path that does not exist. The loader reads the
folder named by OCL_ICD_VENDORS once, when a process lists its platforms for the first time, so the folder must be
ready before that. PoCL's wheel needs nothing: pyopencl's loader looks beside itself too.
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

_VARIABLE = "OCL_ICD_VENDORS"
_SYSTEM_FOLDER = Path("/etc/OpenCL/vendors")
_LIBRARY = "intelocl64.dll" if sys.platform == "win32" else "libintelocl.so"


@dataclass(frozen=True, slots=True)
class DriverSetup:
    """What was done to make drivers visible, for `doctor`. Paths are absolute."""

    packaged_driver: str = ""
    """Intel's CPU library, or empty when its package is not installed."""
    folder: str = ""
    """The folder that OCL_ICD_VENDORS names, where it was set here."""
    note: str = ""
    """Why nothing was set, where nothing was."""


def prepare() -> DriverSetup:
    """Make packaged drivers visible. Call before platforms are listed; harmless to repeat."""
    library = packaged_library()
    if library is None:
        return DriverSetup(note="no packaged Intel runtime: install polyhal[cpu] for the fastest CPU device on x86-64")
    found = str(library)
    user = os.environ.get(_VARIABLE, "")
    if user and not Path(user).is_dir():
        return DriverSetup(found, note=f"{_VARIABLE} names the single driver {user}; left as it is")
    if user and _lists(Path(user), library):
        return DriverSetup(found, user)
    late = "pyopencl" in sys.modules
    note = "if this process listed OpenCL platforms before, the packaged driver stays invisible to it" if late else ""
    if sys.platform == "win32":
        # Windows' loader takes a list of library files instead of a folder, beside those in the registry.
        os.environ["OCL_ICD_FILENAMES"] = os.pathsep.join(
            filter(None, [os.environ.get("OCL_ICD_FILENAMES", ""), found])
        )
        return DriverSetup(found, note=note)
    folder = _write_folder(_registrations(Path(user) if user else _SYSTEM_FOLDER, library))
    os.environ[_VARIABLE] = str(folder)
    return DriverSetup(found, str(folder), note)


def packaged_library() -> Path | None:
    """The library of the installed package `intel-opencl-rt`, or None."""
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
    """The library that a registration file names; empty when it cannot be read."""
    try:
        name = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return str(Path(name).resolve()) if os.path.isabs(name) else name


def _registrations(existing: Path, library: Path) -> dict[str, str]:
    """The files of the new folder: the machine's own drivers and the packaged one."""
    files = {}
    for file in sorted(existing.glob("*.icd")) if existing.is_dir() else []:
        target = _target(file)
        # The wheel's own registration names a path inside the machine that built it.
        if target and (Path(target).name != _LIBRARY or Path(target).is_file()) and target != str(library):
            files[file.name] = target
    files["polyhal-intel-cpu.icd"] = str(library)
    return files


def _write_folder(files: dict[str, str]) -> Path:
    """A folder with exactly these files. Its name is a digest of them, so processes that race write the same bytes."""
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
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".tmp-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(target)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
