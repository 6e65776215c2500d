"""Failures that a device reports."""

from __future__ import annotations

import copy
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceFailure:
    """A failed command."""

    sequence: int
    """Sequence number of the command."""
    error: Exception
    fatal: bool = False
    """True if the device has halted."""
    problem: str = ""
    """Description of a fatal failure."""
    time_ns: int = 0
    """Virtual time at which the host notices a fatal failure."""

    def new_error(self) -> Exception:
        """Return the error to raise: a new one each time, because a traceback keeps the locals of its frames alive."""
        error = copy.copy(self.error)
        error.__cause__ = self.error.__cause__
        return error
