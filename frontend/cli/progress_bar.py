"""A progress bar on a terminal that does not show keys: a `^C` in its line would leave a stale copy of the bar above."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.progress import Progress

if TYPE_CHECKING:
    from typing import Any

try:
    import termios
except ImportError:  # Windows, whose console does not show ^C
    HAS_TERMIOS = False
else:
    HAS_TERMIOS = True

_LOCAL_FLAGS = 3
"""Index of the local flags in the list of `termios.tcgetattr` (POSIX, termios)."""


class ProgressBar(Progress):
    """A bar of rich. The terminal of standard input shows no keys while it is live, and shows them again afterwards."""

    _shown_keys: list[Any] | None = None

    def start(self) -> None:
        """Show the bar, and hide keys."""
        if self._shown_keys is None:
            self._shown_keys = _hide_keys()
        super().start()

    def stop(self) -> None:
        """Draw the bar a last time, and show keys again, also after an exception."""
        try:
            super().stop()
        finally:
            if self._shown_keys is not None:
                _set(self._shown_keys)
                self._shown_keys = None


def _hide_keys() -> list[Any] | None:
    """Turn the echo off. Returns the settings from before, or None where there is no terminal or no echo."""
    if not HAS_TERMIOS:
        return None
    try:
        if not _in_foreground():
            return None
        before = termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError, AttributeError):  # no terminal, or standard input is closed
        return None
    if not before[_LOCAL_FLAGS] & termios.ECHO:
        return None
    after = list(before)
    after[_LOCAL_FLAGS] &= ~termios.ECHO
    _set(after)
    return before


def _in_foreground() -> bool:
    """Return whether the process may change the terminal: one in the background would be stopped for it (SIGTTOU)."""
    return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _set(settings: list[Any]) -> None:
    try:
        if _in_foreground():
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, settings)
    except (termios.error, OSError, ValueError):  # the terminal was closed meanwhile
        pass


__all__ = ["ProgressBar"]
