"""Settings that a library refuses by a list of device names of its own. Where it starts to accept one, the program that says so
fails, and the way around it in docs/torch.md is obsolete."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


def assert_refused(call: Callable[[], Any], words: str, kind: type[Exception] = ValueError) -> None:
    """Raise AssertionError unless a call raises an error of a kind with these words, a regular expression."""
    try:
        call()
    except kind as error:
        if re.search(words, str(error)):
            return
        raise
    raise AssertionError(f"the library accepts what it refused with: {words}")
