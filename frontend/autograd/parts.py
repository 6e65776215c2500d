"""Gradients of slices, gathered until their tensor's own gradient is needed.

A tensor that was split, as queries, keys and values are, gets one gradient per part. Writing each into zeros and adding the
results would pass over the whole several times; parts that lie side by side are joined instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.hal.layout import Spec
from polyhal.hal.ops import FUNCTIONS

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_add, _concat, _unslice = (FUNCTIONS[n] for n in ("add", "concat", "unslice"))

Place = tuple[tuple[int, ...], tuple[int, ...]]
"""Where a slice starts along each axis, and its step."""


class Parts:
    """The gradients of slices of one tensor of `spec`."""

    __slots__ = ("_parts", "spec")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._parts: list[tuple[Tensor, Place]] = []

    def add(self, g: Tensor, starts: tuple[int, ...], steps: tuple[int, ...]) -> None:
        """One more slice's gradient."""
        self._parts.append((g, (starts, steps)))

    def total(self) -> Tensor:
        """The gradient of the whole tensor."""
        joined = self._joined()
        return self._summed() if joined is None else joined

    def _summed(self) -> Tensor:
        result: Tensor | None = None
        for g, (starts, steps) in self._parts:
            whole = _unslice(g, self.spec.shape, starts, steps)
            result = whole if result is None else _add(result, whole)
        assert result is not None
        return result

    def _joined(self) -> Tensor | None:
        """The parts side by side, where they cover the tensor along one axis without gaps and without overlap."""
        axis = self._axis()
        if axis is None:
            return None
        ordered = sorted(self._parts, key=lambda part: part[1][0][axis])
        reached = 0
        for g, (starts, _) in ordered:
            if starts[axis] != reached:
                return None
            reached += g.shape[axis]
        if reached != self.spec.shape[axis]:
            return None
        result: Tensor = _concat([g for g, _ in ordered], axis)
        return result

    def _axis(self) -> int | None:
        """The one axis along which the parts are shorter than the tensor, or None."""
        shape = self.spec.shape
        axes: set[int] = set()
        for g, (_, steps) in self._parts:
            if g.dtype is not self.spec.dtype or any(s != 1 for s in steps):
                return None
            axes |= {i for i, (own, whole) in enumerate(zip(g.shape, shape, strict=True)) if own != whole}
        return axes.pop() if len(axes) == 1 else None
