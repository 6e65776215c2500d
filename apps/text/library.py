"""The library `tokenizers`: import, and conversion of its failures to errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from polyhal.hal.errors import CorruptFileError, message


def library(reader: str) -> Any:
    """Return the module `tokenizers`. Raises ImportError, with the command that installs it."""
    try:
        import tokenizers
    except ImportError as error:
        fix = 'pip install "polyhal[llm]"'
        raise ImportError(message(reader, "the library `tokenizers` is missing", fix=fix)) from error
    return tokenizers


@contextmanager
def converted(reader: str, problem: str, expected: str) -> Iterator[None]:
    """Convert failures of the library in a block to CorruptFileError.

    It raises plain Exception for text that it cannot read, and a BaseException of its own where its code panics.
    """
    try:
        yield
    except (CorruptFileError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CorruptFileError(message(reader, f"{problem}: {error}", expected=expected)) from error
