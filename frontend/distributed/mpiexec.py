"""MPI's launcher: its location, its command line, and the filtering of its output."""

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
"""Names of MPICH's library, on Linux and macOS."""
_BANNER = re.compile(
    r"^(={20,}|=   .*|YOUR APPLICATION TERMINATED.*|This typically refers to.*|Please see the FAQ.*)?$"
)
"""Lines that MPICH prints about a process that died; the launcher's message is clearer."""


def find() -> Path:
    """Return the mpiexec of the `mpich` package in this Python environment, or else of the path. Raises ProcessGroupError."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / "mpiexec").exists():
            return folder / "mpiexec"
    found = shutil.which("mpiexec")
    if found is None:
        fix = 'run pip install "polyhal[distributed]"'
        raise ProcessGroupError(
            message("launch", "mpiexec is neither in this Python environment nor on the path", fix=fix)
        )
    return Path(found)


def variables() -> dict[str, str]:
    """Return variables that make mpi4py load the library of this mpiexec: it might find another MPI of the machine first.

    Raises ProcessGroupError.
    """
    folder = find().parent.parent / "lib"
    library = next((f for name in _LIBRARIES if (f := folder / name).exists()), None)
    return {} if library is None else {"MPI4PY_LIBMPI": str(library)}


def command(ranks: int, hosts: Sequence[str], program: Sequence[str]) -> list[str]:
    """Return the command that starts `program` in `ranks` processes, in blocks on `hosts`. Raises ProcessGroupError."""
    mpiexec = find()
    per_host = -(-ranks // max(len(hosts), 1))
    if _is_open_mpi(mpiexec):
        places = ["--host", ",".join(f"{h}:{per_host}" for h in hosts)] if hosts else ["--oversubscribe"]
        root = ["--allow-run-as-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
        return [str(mpiexec), *root, *places, "-n", str(ranks), *program]
    places = ["-hosts", ",".join(hosts), "-ppn", str(per_host)] if hosts else []
    # Survivors of a lost rank end by themselves: the hub notifies them.
    return [str(mpiexec), "-disable-auto-cleanup", *places, "-n", str(ranks), *program]


def _is_open_mpi(mpiexec: Path) -> bool:
    shown = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False, timeout=30)
    return "Open MPI" in shown.stdout or "OpenRTE" in shown.stdout


class Output:
    """Forwards the output of a job's processes, without MPICH's banner about a process that died."""

    def __init__(self, stream: IO[str], to: TextIO) -> None:
        self._stream = stream
        self._to = to
        self.signal: int | None = None
        """Signal that ended a process, if any."""
        self._thread = threading.Thread(target=self._pass_on, name="polyhal-launch-output", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Forward the remaining output after the end of the job."""
        self._thread.join(1.0)

    def _pass_on(self) -> None:
        for line in self._stream:
            found = _SIGNAL.search(line)
            if found:
                self.signal = int(found[1])
            if not _BANNER.match(line):
                self._to.write(line)
                self._to.flush()
