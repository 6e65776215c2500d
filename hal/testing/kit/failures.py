"""What a failed check says: to people in one line, to reports in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from polyhal.hal.errors import KernelBuildError

_DURING = "while checking "
_HOW = "which ran as "
_LONGEST = 200
"""Characters of a failure where it is one of many."""


class ResultError(AssertionError):
    """A device's result is not the expected one. The text says it all in one line; the parts are for reports."""

    def __init__(self, what: str, summary: str, place: str = "", got: str = "", expected: str = "") -> None:
        text = f"{what}: {summary}"
        super().__init__(f"{text}; first at {place}: got {got}, expected {expected}" if place else text)
        self.what = what
        """The call, with the dtypes and shapes of its inputs and how they lie in memory."""
        self.summary = summary
        self.place = place
        """The index of the first wrong element; empty where the shape or dtype is wrong."""
        self.got = got
        self.expected = expected


@contextmanager
def during(what: str, how: Callable[[], str] | None = None) -> Iterator[None]:
    """Have whatever is raised inside the block, by a driver for instance, say during which call; `how` says how it ran."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, ResultError):
            error.add_note(_DURING + what)
        if how is not None and (text := how()):
            error.add_note(_HOW + text)
        raise


def call_of(error: BaseException) -> str:
    """The call that failed, as far as the exception knows it."""
    return error.what if isinstance(error, ResultError) else _note(error, _DURING)


def how_of(error: BaseException) -> str:
    """How that call ran, as far as the exception knows it."""
    return _note(error, _HOW)


def _note(error: BaseException, beginning: str) -> str:
    notes = (n for n in getattr(error, "__notes__", ()) if n.startswith(beginning))
    return next(notes, beginning)[len(beginning) :]


def gist(error: BaseException) -> str:
    """What went wrong, in one line that is not too long."""
    if isinstance(error, ResultError):
        text = f"wrong result, {error.summary}"
        if error.place:
            text = f"{text} (got {error.got}, expected {error.expected})"
    elif isinstance(error, KernelBuildError):
        text = f"the kernel does not build: {error.gist}"
    else:
        text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def explained(case: str, device: str, error: AssertionError) -> str:
    """A failed check as a person wants to read it who wrote the backend, or who just has the device."""
    result = error if isinstance(error, ResultError) else None
    rows = {
        "call": call_of(error),
        "problem": result.summary if result is not None else str(error),
        "found": f"{result.got} at {result.place}" if result is not None and result.place else "",
        "expected": result.expected if result is not None else "",
        "ran as": how_of(error),
        "repeat": f"polyhal verify {device} --no-quarantine --only '{case}'",
        "to do": "mend the kernel; or, for good reasons, list the check as unsupported or as an expected failure in a file for "
        "--polyhal-expectations; on a machine where it is to be used as it is, `polyhal verify` finds another way",
    }
    return "\n".join([f"{case} on {device}", *(f"  {name:9} {value}" for name, value in rows.items() if value)])
