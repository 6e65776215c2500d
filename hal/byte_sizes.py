"""Numbers of bytes as text."""

from __future__ import annotations


def size_text(nbytes: int) -> str:
    """Return a number of bytes with its unit, as in "96 B" and "1.50 MiB"."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes} B"
