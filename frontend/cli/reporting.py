"""How commands speak: one console for results, one for messages, and errors as one sentence with an exit code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from polyhal.hal.errors import PolyhalError
from polyhal.hal.settings import env

P = ParamSpec("P")
R = TypeVar("R")

BAD_INPUT = 2
INTERNAL = 1
INTERRUPTED = 130
"""What shells report for a process that Ctrl-C ended."""


def sentence(error: BaseException) -> str:
    """What an error says, for a person. Operating system errors name the file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error) or type(error).__name__


def fail(text: str) -> None:
    """One message on standard error, without markup and without folding, so that it can be searched for."""
    bold, plain = ("\033[1;31m", "\033[0m") if _coloured() else ("", "")
    print(f"{bold}error:{plain} {text}", file=sys.stderr, flush=True)


def _coloured() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def reported(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors that people cause into one sentence and exit code 2, and defects of ours into one with code 1.

    With POLYHAL_DEBUG=1 every error keeps its traceback.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (PolyhalError, OSError, MemoryError) as error:
            if env.debug():
                raise
            if isinstance(error, BrokenPipeError):
                raise
            fail(sentence(error))
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:
            fail("interrupted")
            raise typer.Exit(INTERRUPTED) from error
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except (
            Exception
        ) as error:  # a defect of ours: still no traceback in people's faces, but told apart from bad input
            if env.debug():
                raise
            fail(f"unexpected {type(error).__name__}: {sentence(error)} (set POLYHAL_DEBUG=1 for the traceback)")
            raise typer.Exit(INTERNAL) from error

    return run
