"""Integer arithmetic of launch sizes."""

from __future__ import annotations


def ceil_div(n: int, d: int) -> int:
    """Return n / d, rounded up."""
    return -(-n // d)


def round_up(n: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `n`."""
    return -(-n // multiple) * multiple


def power_of_two_at_most(n: int) -> int:
    """Return the largest power of two that is at most `n` >= 1."""
    return 1 << (n.bit_length() - 1)


def power_of_two_at_least(n: int) -> int:
    """Return the smallest power of two that is at least `n` >= 1."""
    return 1 << (n - 1).bit_length()
