"""Pieces of C source: identifiers, strings, and lists of numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    asm auto bool break case catch char class const continue default delete do double else enum extern false float
    for friend goto if inline int long namespace new operator private protected public register restrict return
    short signed sizeof static struct switch template this throw true try typedef union unsigned using virtual void
    volatile while
    """,
    )
)
"""Words that C99 or C++ reserves."""
_LONGEST = 4000
"""Characters of a string: compilers need to support 4095."""
_PER_LINE = 16


def is_identifier(name: str) -> bool:
    """Return whether C and C++ accept a name for a variable."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is not None and name not in _KEYWORDS


def identifiers(names: Iterable[str], prefix: str) -> list[str]:
    """Return an identifier for each name; names that begin with a digit get the prefix.

    They differ in upper case, too, in which constants are named.
    """
    made: dict[str, str] = {}
    for name in names:
        base = re.sub(r"\W", "_", name, flags=re.ASCII)
        base = base if base[:1].isalpha() else f"{prefix}_{base.strip('_')}"
        candidate, count = f"{base}_" if base in _KEYWORDS else base, 1
        while candidate.upper() in made:
            count += 1
            candidate = f"{base}_{count}"
        made[candidate.upper()] = candidate
    return list(made.values())


def string(text: str) -> str:
    """Return a string literal; bytes beyond ASCII are written in octal digits."""
    return '"' + "".join(map(_character, text.encode())) + '"'


def _character(byte: int) -> str:
    if byte in b'\\"?':  # ?? begins a trigraph
        return f"\\{chr(byte)}"
    if byte == 10:
        return "\\n"
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def lines(text: str) -> list[str]:
    """Return string literals that make up a text, one for each line, or several for a long one."""
    found = []
    for line in text.splitlines(keepends=True):
        found += [string(line[i : i + _LONGEST // 4]) for i in range(0, len(line), _LONGEST // 4)]
    return found


def comment(text: str) -> str:
    """Return a text that may stand in a comment."""
    return text.replace("*/", "* /").replace("\n", " ")


def array(kind: str, name: str, entries: Sequence[str], linkage: str = "static ") -> str:
    """Return the definition of an array with an entry per line; empty without entries, because C has no empty arrays."""
    if not entries:
        return ""
    body = "".join(f"    {e},\n" for e in entries)
    return f"{linkage}const {kind} {name}[] = {{\n{body}}};\n\n"


def byte_array(name: str, data: bytes) -> str:
    """Return the definition of an array of bytes."""
    rows = (data[i : i + _PER_LINE] for i in range(0, len(data), _PER_LINE))
    return array("unsigned char", name, [", ".join(map(_byte, row)) for row in rows])


_byte: Callable[[int], str] = "{:d}".format


def pointer(name: str, entries: Sequence[object]) -> str:
    """Return the name of an array, or NULL for one without entries."""
    return name if entries else "NULL"
