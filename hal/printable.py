"""Text of drivers and plug-ins, made safe to print: control characters could move the cursor or change the terminal."""

from __future__ import annotations

import unicodedata

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return `text` with control, format and other invisible characters replaced by U+FFFD, except line ends and spaces."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or not _is_control(c) else _REPLACEMENT for c in text)


def printable_line(text: str) -> str:
    """Return `text` as `printable` does, with line ends replaced as well, so that names take one line."""
    return printable(text.replace("\n", _REPLACEMENT))


def _is_control(character: str) -> bool:
    return unicodedata.category(character)[0] == "C" or character in "\u2028\u2029"
