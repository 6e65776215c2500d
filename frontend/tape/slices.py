"""Gradients of slices, added up when their tensor's own gradient is needed.

A tensor that was split, as queries, keys and values are, receives one gradient per slice. Padding each with zeros and adding
the results would pass over the whole tensor several times; slices that are adjacent are concatenated instead.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

from polyhal.hal.layout import Spec
from polyhal.hal.ops import FUNCTIONS

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_add, _concat, _unslice = (FUNCTIONS[n] for n in ("add", "concat", "unslice"))


class _SliceGradient(NamedTuple):
    gradient: Tensor
    starts: tuple[int, ...]
    steps: tuple[int, ...]


@final
class SliceSum:
    """A gradient for a tensor of `spec`: the sum of a whole gradient, if any, and gradients of slices."""

    __slots__ = ("_slices", "_whole", "spec")

    def __init__(self, spec: Spec, gradient: Tensor, starts: tuple[int, ...], steps: tuple[int, ...]) -> None:
        """Begin with the gradient of one slice."""
        self.spec = spec
        self._whole: Tensor | None = None
        self._slices = [_SliceGradient(gradient, starts, steps)]

    def add(self, g: Gradient) -> None:
        """Add another gradient of the same tensor."""
        whole: Tensor | None
        if isinstance(g, SliceSum):
            self._slices += g._slices
            whole = g._whole
        else:
            whole = g
        if whole is not None:
            self._whole = whole if self._whole is None else _add(self._whole, whole)

    def tensors(self) -> list[Tensor]:
        """Return the terms of the sum: gradients of slices, and of the whole tensor."""
        return [part.gradient for part in self._slices] + ([] if self._whole is None else [self._whole])

    def total(self) -> Tensor:
        """Return the gradient of the whole tensor."""
        joined = self._concatenated()
        if joined is None:
            joined = self._padded()
        return joined if self._whole is None else _add(self._whole, joined)

    def _padded(self) -> Tensor:
        """Return the sum of the slices, each padded with zeros."""
        padded = (_unslice(g, self.spec.shape, starts, steps) for g, starts, steps in self._slices)
        result: Tensor = reduce(_add, padded)
        return result

    def _concatenated(self) -> Tensor | None:
        """Concatenate the slices if they cover the tensor along one axis without gaps and without overlap."""
        axis = self._axis()
        if axis is None:
            return None
        ordered = sorted(self._slices, key=lambda part: part.starts[axis])
        end = 0
        for g, starts, _ in ordered:
            if starts[axis] != end:
                return None
            end += g.shape[axis]
        if end != self.spec.shape[axis]:
            return None
        result: Tensor = _concat([part.gradient for part in ordered], axis)
        return result

    def _axis(self) -> int | None:
        """Return the only axis along which the slices are shorter than the tensor; None if there are several, or steps."""
        shape = self.spec.shape
        axes: set[int] = set()
        for g, _, steps in self._slices:
            if g.dtype is not self.spec.dtype or any(s != 1 for s in steps):
                return None
            axes |= {i for i, (part, whole) in enumerate(zip(g.shape, shape, strict=True)) if part != whole}
        return axes.pop() if len(axes) == 1 else None


Gradient: TypeAlias = "Tensor | SliceSum"
"""A gradient on its way to the node that made the tensor."""


def add_gradients(a: Gradient, b: Gradient) -> Gradient:
    """Return the sum of two gradients of one tensor; sums with slices are not computed yet."""
    if type(a) is SliceSum:
        a.add(b)
        return a
    if type(b) is SliceSum:
        b.add(a)
        return b
    result: Tensor = _add(a, b)
    return result
