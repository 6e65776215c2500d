"""What a device reports when something went wrong."""

from __future__ import annotations

import copy
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceFailure:
    """Something that went wrong on the device."""

    sequence: int
    """The command."""
    error: Exception
    fatal: bool = False
    """Whether the device has halted."""
    problem: str = ""
    """Of a fatal failure, in words."""
    time_ns: int = 0
    """When the host learns of a fatal failure."""

    def new_error(self) -> Exception:
        """Return the error to raise: a new one each time, because its traceback keeps alive what the program had then."""
        error = copy.copy(self.error)
        error.__cause__ = self.error.__cause__
        return error
