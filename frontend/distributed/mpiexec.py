"""MPI's starter: where it is, how it is called, and what of its output is worth reading."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TextIO

from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.hal.errors import message

_SIGNAL = re.compile(r"EXIT STRING: .*\(signal (\d+)\)")
_LIBRARIES = ("libmpi.so.12", "libmpi.12.dylib")
"""MPICH's, on Linux and macOS."""
_BANNER = re.compile(
    r"^(={20,}|=   .*|YOUR APPLICATION TERMINATED.*|This typically refers to.*|Please see the FAQ.*)?$"
)
"""What MPICH says about a process that died; the launcher says it better."""


def find() -> Path:
    """The mpiexec of the `mpich` package beside this Python, or else the first on the path. Raises ProcessGroupError."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / "mpiexec").exists():
            return folder / "mpiexec"
    found = shutil.which("mpiexec")
    if found is None:
        fix = "run pip install 'polyhal[distributed]'"
        raise ProcessGroupError(message("launch", "there is no mpiexec beside this Python or on the path", fix=fix))
    return Path(found)


def variables() -> dict[str, str]:
    """What makes mpi4py load the library that was installed with mpiexec: another MPI of the machine may be found first.

    Raises ProcessGroupError.
    """
    folder = find().parent.parent / "lib"
    library = next((f for name in _LIBRARIES if (f := folder / name).exists()), None)
    return {} if library is None else {"MPI4PY_LIBMPI": str(library)}


def command(ranks: int, hosts: Sequence[str], program: Sequence[str]) -> list[str]:
    """The command that starts `program` in `ranks` processes, dealt out to `hosts` in blocks. Raises ProcessGroupError."""
    mpiexec = find()
    per_host = -(-ranks // max(len(hosts), 1))
    if _is_open_mpi(mpiexec):
        places = ["--host", ",".join(f"{h}:{per_host}" for h in hosts)] if hosts else ["--oversubscribe"]
        root = ["--allow-run-as-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
        return [str(mpiexec), *root, *places, "-n", str(ranks), *program]
    places = ["-hosts", ",".join(hosts), "-ppn", str(per_host)] if hosts else []
    # Survivors of a rank that died are to end in their own way: the hub tells them.
    return [str(mpiexec), "-disable-auto-cleanup", *places, "-n", str(ranks), *program]


def _is_open_mpi(mpiexec: Path) -> bool:
    shown = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False, timeout=30)
    return "Open MPI" in shown.stdout or "OpenRTE" in shown.stdout


class Output:
    """Passes on what the processes of a job write, without the banner about one that died."""

    def __init__(self, stream: IO[str], to: TextIO) -> None:
        self._stream = stream
        self._to = to
        self.signal: int | None = None
        """The signal that ended a process, if one did."""
        self._thread = threading.Thread(target=self._pass_on, name="polyhal-launch-output", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Pass on the rest, when the job has ended."""
        self._thread.join(1.0)

    def _pass_on(self) -> None:
        for line in self._stream:
            found = _SIGNAL.search(line)
            if found:
                self.signal = int(found[1])
            if not _BANNER.match(line):
                self._to.write(line)
                self._to.flush()
