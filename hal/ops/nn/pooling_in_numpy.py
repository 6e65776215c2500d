"""Windows of pooling in NumPy, one axis after the other: no copy of an image with its padding, no array of all windows.

A tap is a position of the kernel along an axis. It reads one element of each window; those in the padding are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.hal.ops.nn.window_shape import output_length

Index = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """The windows along the last axis but `after` of an array: `count` of them, over `length` elements."""

    after: int
    length: int
    count: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    def taps(self) -> Iterator[tuple[int, Index, Index]]:
        """Yield each tap with the indices of the windows whose element is in the axis, and of the elements."""
        for tap in range(self.kernel):
            offset = tap * self.dilation - self.padding
            first = max(0, -(offset // self.stride))
            last = min(self.count, (self.length - 1 - offset) // self.stride + 1)
            if first < last:
                begin, end = first * self.stride + offset, (last - 1) * self.stride + offset + 1
                yield tap, self._index(slice(first, last)), self._index(slice(begin, end, self.stride))

    def starts(self) -> np.ndarray:
        """Return where each window begins, in a shape that broadcasts to an array of windows."""
        return (np.arange(self.count) * self.stride - self.padding).reshape(-1, *(1,) * self.after)

    def windows_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one value per window, for an array of `shape`."""
        axis = len(shape) - 1 - self.after
        return (*shape[:axis], self.count, *shape[axis + 1 :])

    def elements_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the elements, for one value per window in `shape`."""
        axis = len(shape) - 1 - self.after
        return (*shape[:axis], self.length, *shape[axis + 1 :])

    def _index(self, places: slice) -> Index:
        return (Ellipsis, places, *(slice(None),) * self.after)


def window_axes(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Any,
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[WindowAxis, WindowAxis]:
    """Return the windows along the rows' and the columns' axis of images of `shape`."""
    rows, columns = (
        WindowAxis(1 - axis, n, output_length(n, k, s, p, d, ceil_mode), k, s, p, d)
        for axis, (n, k, s, p, d) in enumerate(zip(shape[2:], kernel, stride, padding, dilation, strict=True))
    )
    return rows, columns


def reduce_windows(combine: np.ufunc, x: np.ndarray, axis: WindowAxis, neutral: float) -> np.ndarray:
    """Combine the elements of each window along an axis: np.maximum or np.add, with its neutral element."""
    out = np.full(axis.windows_shape(x.shape), neutral, x.dtype)
    for _, windows, elements in axis.taps():
        combine(out[windows], x[elements], out=out[windows])
    return out


def spread_windows(values: np.ndarray, axis: WindowAxis) -> np.ndarray:
    """Add each window's value to all of its elements along an axis: the transpose of a sum."""
    out = np.zeros(axis.elements_shape(values.shape), values.dtype)
    for _, windows, elements in axis.taps():
        out[elements] += values[windows]
    return out


def taps_of_maxima(x: np.ndarray, best: np.ndarray, axis: WindowAxis) -> np.ndarray:
    """Return the tap at which each window along an axis has its maximum `best`: the first, or of NaN the last.

    Windows with no element in the axis have tap 0.
    """
    leading = np.maximum(-(axis.starts() // axis.dilation), 0)  # taps in the padding before the axis
    leading[axis.starts() + leading * axis.dilation >= axis.length] = 0
    out = np.empty(best.shape, np.min_scalar_type(axis.kernel))
    out[...] = leading
    pending = np.ones(best.shape, bool)
    for _, windows, elements in axis.taps():
        pending[windows] &= x[elements] != best[windows]
        out[windows] += pending[windows]
    if np.isnan(best).any():
        for tap, windows, elements in axis.taps():
            out[windows][np.isnan(x[elements])] = tap
    return out
