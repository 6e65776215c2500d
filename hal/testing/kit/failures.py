"""Failures of checks: the exception with its parts, and texts for users and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from polyhal.hal.errors import KernelBuildError
from polyhal.hal.system.reference.tolerances import ResultError

_DURING = "while checking "
_HOW = "which ran as "
_MAX_LINE = 200
"""Maximum characters of a failure in a list."""


@contextmanager
def failure_context(call: str, resolution: Callable[[], str] | None = None) -> Iterator[None]:
    """Add the call and its resolution to any exception raised inside the block."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, ResultError):
            error.add_note(_DURING + call)
        if resolution is not None and (text := resolution()):
            error.add_note(_HOW + text)
        raise


def failed_call(error: BaseException) -> str:
    """Return the failed call; empty if the exception does not contain it."""
    return error.what if isinstance(error, ResultError) else _note(error, _DURING)


def failed_resolution(error: BaseException) -> str:
    """Return the resolution of the failed call; empty if the exception does not contain it."""
    return _note(error, _HOW)


def _note(error: BaseException, prefix: str) -> str:
    notes = (n for n in getattr(error, "__notes__", ()) if n.startswith(prefix))
    return next(notes, prefix)[len(prefix) :]


def one_line(error: BaseException) -> str:
    """Describe an exception in one line of bounded length."""
    if isinstance(error, ResultError):
        text = f"wrong result, {error.summary}"
        if error.place:
            text = f"{text} (got {error.got}, expected {error.expected})"
    elif isinstance(error, KernelBuildError):
        text = f"the kernel does not build: {error.gist}"
    else:
        text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 1] + "…"


def failure_text(case: str, device: str, error: AssertionError) -> str:
    """Return an explanation of a failed check for the author of the backend or the owner of the device."""
    result = error if isinstance(error, ResultError) else None
    rows = {
        "call": failed_call(error),
        "problem": result.summary if result is not None else str(error),
        "found": f"{result.got} at {result.place}" if result is not None and result.place else "",
        "expected": result.expected if result is not None else "",
        "ran as": failed_resolution(error),
        "repeat": f"polyhal verify {device} --no-quarantine --only '{case}'",
        "to do": "fix the kernel; or, for good reasons, list the check as unsupported or as an expected failure in a file for "
        "--polyhal-expectations; on a machine that cannot update it, `polyhal verify` replaces the kernel",
    }
    return "\n".join([f"{case} on {device}", *(f"  {name:9} {value}" for name, value in rows.items() if value)])
