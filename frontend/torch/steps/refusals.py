"""Errors and reasons for operations that a recorded step does not support."""

from __future__ import annotations

from polyhal.hal.compile.capture.replay_cache import NotReplayableError
from polyhal.hal.core.execution.user_line import user_line
from polyhal.hal.errors import CaptureError, message


class RefusedError(CaptureError):
    """An operation that a recorded step does not support, with the line of the program."""

    def __init__(self, problem: str, expected: str = "", fix: str = "") -> None:
        super().__init__(message("jit", problem, expected=expected, fix=fix))
        self.parts = problem, expected, fix


def as_reason(error: CaptureError) -> NotReplayableError:
    """Return the reason for which calls run eagerly after an operation was refused."""
    problem, expected, fix = error.parts if isinstance(error, RefusedError) else (str(error), "", "")
    return NotReplayableError(problem, fix, expected=expected, is_certain=True)


def refusal(problem: str, *, expected: str = "", fix: str = "") -> CaptureError:
    """Return the error for an operation that a recorded step does not support, with the current line of the program."""
    line = user_line()
    return RefusedError(problem if line in problem else f"{problem}, at {line}", expected, fix)
