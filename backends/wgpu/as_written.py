"""Messages of WGSL compilers about user kernels, mapped back to the user's source.

`user_kernel` rewrites a source line by line: line numbers stay, columns change. A message quotes rewritten lines and
marks columns below them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

_QUOTED = re.compile(r"(\s*(\d+) │ (?:[╭│╰─^ ]* )?)(.*)")
_PLACE = re.compile(r"(┌─ )[^:]*:(\d+):(\d+)")
_MARKS = re.compile(r"\^+")


def as_written(log: str, name: str, rewritten: Sequence[str], written: Sequence[str]) -> str:
    """Return a compiler's log with lines and columns of the kernel `name` as in the user's source."""
    lines: list[str] = []
    quoted, start = 0, 0  # number of the last quoted line, and the start of its text
    for line in log.replace("polyhal_main", "main").split("\n"):
        if (place := _PLACE.search(line)) is not None and int(place[2]) <= len(written):
            number = int(place[2])
            column = _column(rewritten[number - 1], written[number - 1], int(place[3]) - 1) + 1
            line = f"{line[: place.start()]}{place[1]}{name}:{number}:{column}{line[place.end() :]}"
        elif (quote := _QUOTED.fullmatch(line)) is not None and int(quote[2]) <= len(written):
            quoted, text = int(quote[2]), rewritten[int(quote[2]) - 1].replace("polyhal_main", "main")
            if line.rstrip().endswith(text.rstrip()):
                start = len(line.rstrip()) - len(text.rstrip())
                line = line[:start] + written[quoted - 1]
            else:
                quoted = 0
        elif quoted and (marks := _MARKS.search(line)) is not None and marks.start() >= start:
            first, last = (
                _column(rewritten[quoted - 1], written[quoted - 1], at - start)
                for at in (marks.start(), marks.end() - 1)
            )
            line = f"{line[:start]}{' ' * first}{'^' * max(last - first + 1, 1)}{line[marks.end() :]}"
        lines.append(line)
    return "\n".join(lines)


def _column(rewritten: str, written: str, column: int) -> int:
    """Return the column in the written line of a rewritten line's character, or of the next character in both."""
    for block in SequenceMatcher(None, rewritten, written, autojunk=False).get_matching_blocks():
        if column < block.a + block.size:
            return block.b + max(column - block.a, 0)
    return len(written)
