"""A process of a job: runs a Polyhal command, a script or a module, and reports its end to the launcher."""

from __future__ import annotations

import runpy
import sys
import traceback
from io import TextIOWrapper
from pathlib import Path

from polyhal.cli import reporting
from polyhal.cli.app import COMMANDS
from polyhal.cli.reporting import INTERNAL, INTERRUPTED
from polyhal.cli.workers.program import of_program
from polyhal.distributed.environment import mpi_place
from polyhal.distributed.job import is_initialized
from polyhal.distributed.mpi import keep_watch
from polyhal.distributed.watch import LOST, Watch
from polyhal.hal.core.settings import env


def main(arguments: list[str]) -> int:
    """Run the program `arguments`. Returns the exit status of this process."""
    place, hub = mpi_place(), env.hub()
    assert place is not None, "started by `polyhal launch`"
    assert hub is not None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # whole lines, because all ranks write to one terminal
            stream.reconfigure(line_buffering=True, write_through=False)
    watch = Watch(hub, place.rank)
    watch.report_crashes()
    keep_watch(watch)
    said: list[str] = []
    reporting.REPORTERS.append(said.append)
    try:
        status = _run(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else INTERNAL
        if isinstance(error.code, str):
            said.append(error.code)
    except KeyboardInterrupt:
        watch.fail("was interrupted", INTERRUPTED)
        return INTERRUPTED
    except BaseException as error:
        if watch.failure is None:
            trace = error.__traceback__
            traceback.print_exception(error.with_traceback(of_program(trace) or trace))
            text = " ".join(str(error).split())
            said.append(f"{type(error).__name__}: {text}" if text else type(error).__name__)
        status = INTERNAL
    if watch.failure is not None:
        return LOST
    if status not in (0, INTERRUPTED):
        watch.fail(f"failed: {said[-1]}" if said else f"ended with exit status {status}", status)
    watch.status = status
    if not is_initialized():  # otherwise the group leaves when Python ends
        watch.leave()
    return status


def _run(arguments: list[str]) -> int:
    """Run a command, a module or a script in this process, as Python would. Returns the exit status of a command."""
    first, *rest = arguments
    if first in COMMANDS:
        from polyhal.cli.app import run

        return run(arguments)
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return 0
    sys.argv = arguments
    sys.path[0] = str(Path(first).resolve().parent)
    runpy.run_path(first, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
