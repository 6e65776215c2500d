"""WindowPlaces of convolutions and pooling: padding, and the number of windows, as ONNX defines them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polyhal as ph
from polyhal.tensor import Tensor


@dataclass(frozen=True, slots=True)
class WindowPlaces:
    """WindowPlaces along the spatial axes of a tensor (N, C, ...)."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    """Padding at the begin of each axis."""
    after: tuple[int, ...]
    results: tuple[int, ...]
    """Number of windows along each axis."""

    @property
    def symmetric(self) -> bool:
        """True if both ends of each axis have the same padding."""
        return self.before == self.after

    def extra(self, lengths: Sequence[int]) -> tuple[int, ...]:
        """Return for each axis how far the last window reaches beyond the padding."""
        spans = ((r - 1) * s + (k - 1) * d + 1 for r, s, k, d in zip(*self._steps(), strict=True))
        padded = (n + b + a for n, b, a in zip(lengths, self.before, self.after, strict=True))
        return tuple(max(s - p, 0) for s, p in zip(spans, padded, strict=True))

    def _steps(self) -> tuple[tuple[int, ...], ...]:
        return self.results, self.strides, self.kernel, self.dilations

    def padded(self, x: Tensor, value: float, *, extra: bool = True) -> Any:
        """Return a tensor with padding of a value, and if `extra` with the elements beyond it that windows reach."""
        beyond = self.extra(x.shape[2:]) if extra else (0,) * len(self.kernel)
        widths = [(b, a + e) for b, a, e in zip(self.before, self.after, beyond, strict=True)]
        return ph.pad(x, [(0, 0), (0, 0), *widths], value) if any(map(any, widths)) else x

    def elements(self, padded: Tensor) -> Iterator[Any]:
        """Yield for each element of the kernel its operands in all windows, of a tensor with padding."""
        for place in itertools.product(*map(range, self.kernel)):
            index = [slice(None), slice(None)]
            for p, r, s, d in zip(place, self.results, self.strides, self.dilations, strict=True):
                index.append(slice(p * d, p * d + (r - 1) * s + 1, s))
            yield padded[tuple(index)]


def windows(
    lengths: Sequence[int],
    kernel: Sequence[int],
    auto_pad: str,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    ceil_mode: bool = False,
) -> WindowPlaces:
    """Return the windows along axes with such lengths. The other arguments are attributes of ONNX's operators."""
    axes = len(kernel)
    stride, dilation = tuple(strides or (1,) * axes), tuple(dilations or (1,) * axes)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = tuple(pads or (0,) * (2 * axes))
    if auto_pad.startswith("SAME"):
        totals = [max((-(-n // s) - 1) * s + w - n, 0) for n, s, w in zip(lengths, stride, spans, strict=True)]
        less, more = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        padding = less + more if auto_pad == "SAME_UPPER" else more + less
    before, after = padding[:axes], padding[axes:]
    results = []
    for n, b, a, s, w in zip(lengths, before, after, stride, spans, strict=True):
        room = n + b + a - w
        if room < 0 and not ceil_mode:
            raise ValueError(f"a window of {w} does not fit in an axis of {n} with padding {b} and {a}")
        count = (-(-room // s) if ceil_mode else room // s) + 1
        results.append(count - 1 if ceil_mode and (count - 1) * s >= n + b else count)
    return WindowPlaces(tuple(kernel), stride, dilation, before, after, tuple(results))
