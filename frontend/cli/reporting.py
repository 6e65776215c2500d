"""Errors on the command line: one sentence on standard error and an exit code, never a traceback.

Errors in the user's input exit with code 2, defects of Polyhal with code 1, so that scripts can distinguish them. A closed
pipe, as in `polyhal devices | head -1`, is not an error.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from polyhal.cli import missing_package
from polyhal.hal.core.settings import env
from polyhal.hal.errors import PolyhalError

P = ParamSpec("P")
R = TypeVar("R")

BAD_INPUT = 2
INTERNAL = 1
INTERRUPTED = 130
"""Exit code that shells report for a process ended by Ctrl-C."""


def sentence(error: BaseException) -> str:
    """Format an error for a person. Errors of the operating system include the file name."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    try:
        return str(error) or type(error).__name__
    except Exception:  # a defective exception of a plug-in
        return type(error).__name__


REPORTERS: list[Callable[[str], None]] = []
"""Functions that receive error messages instead of standard error, in processes of a job, whose launcher prints them."""


def fail(text: str) -> None:
    """Print an error message to standard error as one unwrapped line, so that it can be copied and searched for."""
    if REPORTERS:
        REPORTERS[-1](text)
        return
    bold, plain = ("\033[1;31m", "\033[0m") if _colored() else ("", "")
    try:
        print(f"{bold}error:{plain} {text}", file=sys.stderr, flush=True)
    except OSError:  # a closed pipe or a full disk: the exit code remains
        unwritten()


def _colored() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def report(error: Exception, line: str = "") -> int:
    """Print an error as one sentence, after the `line` of the program at fault, and return its exit code.

    With POLYHAL_DEBUG=1, raise it instead.
    """
    if env.debug():
        raise error
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "polyhal":
        fail(missing_package(error))
        return BAD_INPUT
    if isinstance(error, (PolyhalError, OSError, MemoryError)):
        fail(f"{line}: {sentence(error)}" if line else sentence(error))
        return BAD_INPUT
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    fail(f"unexpected {type(error).__name__}: {sentence(error)}{notes} (set POLYHAL_DEBUG=1 for the traceback)")
    return INTERNAL


def unwritten() -> list[OSError]:
    """Write out the buffers of both output streams, and return the errors of streams that fail.

    A failed stream discards its buffer and all further output, so that the interpreter does not fail at exit.
    """
    errors = []
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:  # None: the process began without the stream
                stream.flush()
        except OSError as error:
            errors.append(error)
            with contextlib.suppress(io.UnsupportedOperation):  # a stream of a test
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return errors


def reported(command: Callable[P, R]) -> Callable[P, R]:
    """Decorate a command: its errors become one sentence and an exit code, raised as typer.Exit.

    With POLYHAL_DEBUG=1 every error keeps its traceback.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise  # handled by `app.run`
        except KeyboardInterrupt as error:
            _tell_ranks(error)
            fail("interrupted")
            raise typer.Exit(INTERRUPTED) from error
        except Exception as error:
            _tell_ranks(error)
            raise typer.Exit(report(error)) from error

    return run


def _tell_ranks(error: BaseException) -> None:
    """Let the other ranks end, too, if this process is a rank of a job."""
    job = sys.modules.get("polyhal.distributed.job")
    if job is not None:
        job.fail(error)


__all__ = ["BAD_INPUT", "INTERNAL", "INTERRUPTED", "REPORTERS", "fail", "report", "reported", "sentence", "unwritten"]
