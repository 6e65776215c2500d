"""Overlap of two layouts of one buffer: a write to one changes the other if they have an element in common.

They overlap if a sum of multiples of the strides equals the distance of the offsets: a linear equation in bounded
integers. Axes of equal stride are one unknown, and larger strides come first, so that the bounds of the smaller ones
leave few candidates. Nested layouts, the common case, are decided in a few steps.
"""

from __future__ import annotations

from polyhal.hal.layout import Ref, extent

_MAX_STEPS = 1000
"""Maximum number of candidates to try before the layouts are assumed to overlap."""


def share_elements(a: Ref, b: Ref) -> bool:
    """Return whether two refs of one allocation have an element in common.

    Also True for layouts that are too complex to decide.
    """
    if a.offset == b.offset and a.size and b.size:
        return True
    low, high = extent(a.spec.shape, a.spec.strides)
    other_low, other_high = extent(b.spec.shape, b.spec.strides)
    distance = b.offset - a.offset
    if high < low or other_high < other_low or low > distance + other_high or distance + other_low > high:
        return False
    bounds: dict[int, list[int]] = {}
    for sign, spec in ((1, a.spec), (-1, b.spec)):
        for n, stride in zip(spec.shape, spec.strides, strict=True):
            if n > 1 and stride:
                span = bounds.setdefault(abs(stride), [0, 0])
                span[1 if sign * stride > 0 else 0] += (n - 1) * (1 if sign * stride > 0 else -1)
    steps = sorted(bounds, reverse=True)
    return _Solver(steps, [(bounds[s][0], bounds[s][1]) for s in steps]).reaches(distance, 0)


class _Solver:
    """Solver of whether a sum of bounded multiples of steps equals a number."""

    def __init__(self, steps: list[int], bounds: list[tuple[int, int]]) -> None:
        self._steps = steps
        self._bounds = bounds
        self._left = _MAX_STEPS
        self._rest = [(0, 0)]
        """Minimum and maximum sum of the steps from each position to the end."""
        for step, (low, high) in zip(reversed(steps), reversed(bounds), strict=True):
            rest_low, rest_high = self._rest[0]
            self._rest.insert(0, (rest_low + step * low, rest_high + step * high))

    def reaches(self, number: int, position: int) -> bool:
        """Return whether the steps after the first `position` can sum up to `number`. True if the search takes too long."""
        if position == len(self._steps):
            return number == 0
        step, (low, high), (rest_low, rest_high) = (
            self._steps[position],
            self._bounds[position],
            self._rest[position + 1],
        )
        first, last = max(low, -((rest_high - number) // step)), min(high, (number - rest_low) // step)
        for count in range(first, last + 1):
            self._left -= 1
            if self._left < 0 or self.reaches(number - step * count, position + 1):
                return True
        return False
