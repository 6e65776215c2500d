"""Factorization of the lengths of Fourier transforms: into radices, passes over memory, and padded lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal.backends.common.launching.geometry import ceil_div

PRIMES = (13, 11, 7, 5, 3)
"""Odd radices that kernels have."""
_SMALL_FACTORS = (1, 3, 5, 9, 15)
"""Odd factors of padded lengths."""


def radices(n: int, bits_of_largest: int = 4) -> tuple[int, ...]:
    """Return radices of product n, the largest first: powers of two of similar sizes, and odd primes. () if there are none.

    The largest power of two is 2 to the power `bits_of_largest`. A length of 1 has the radix 1.
    """
    found, rest = [], n
    for prime in PRIMES:
        while rest % prime == 0:
            found.append(prime)
            rest //= prime
    if rest & (rest - 1):
        return ()
    bits = rest.bit_length() - 1
    stages = ceil_div(bits, bits_of_largest)
    found += [1 << ((bits + i) // stages) for i in range(stages)]
    return tuple(sorted(found, reverse=True)) or (1,)


def pass_lengths(n: int, single: int, several: int) -> tuple[int, ...]:
    """Return the lengths of the passes over memory whose product is n, as equal as possible; () if there are none.

    One pass has at most `single` elements, each of several at most `several`.
    """
    if not radices(n):
        return ()
    if n <= single:
        return (n,)
    divisors = [d for d in range(2, several + 1) if n % d == 0]
    for count in (2, 3):
        found = _split(n, count, several, divisors)
        if found:
            return found
    return ()


def _split(n: int, count: int, limit: int, divisors: list[int]) -> tuple[int, ...]:
    if count == 1:
        return (n,) if n <= limit else ()
    target = math.log(n) / count
    for first in sorted(divisors, key=lambda d: abs(math.log(d) - target)):
        rest = _split(n // first, count - 1, limit, divisors) if n % first == 0 else ()
        if rest:
            return (first, *rest)
    return ()


def padded_length(n: int) -> int:
    """Return the smallest length of at least 2 n - 1 that is a power of two times a small factor."""
    least = 2 * n - 1
    return min(f << max(0, (ceil_div(least, f) - 1).bit_length()) for f in _SMALL_FACTORS)


def work_items(factors: Sequence[int], each: int, most: int) -> int:
    """Return how many work-items transform a row with these radices.

    Each has a butterfly of the largest radix, or several if that has less than `each` elements or work-items would be more than
    `most`.
    """
    length, largest = math.prod(factors), max(factors)
    return ceil_div(length, max(largest * max(1, each // largest), ceil_div(length, most)))
