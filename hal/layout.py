"""Locations of a tensor's elements: specs, references into device memory, and the algebra of views.

Strides and offsets count elements, not bytes. A view never touches data: it maps (spec, offset) to (spec, offset).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from polyhal.hal.dtypes import DType

ALIGNMENT = 16
"""Elements. A spec is aligned when its offset is a multiple of this, so that a kernel may load whole vectors."""


class Spec(NamedTuple):
    """The type and layout of a tensor, without its place in memory: what plans and kernels are built for."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    aligned: bool = True

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, as if contiguous."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are contiguous in row-major order."""
        return is_contiguous(self.shape, self.strides)

    def __str__(self) -> str:
        text = f"{self.dtype.name}{list(self.shape)}"
        return text if self.is_contiguous else f"{text} strides {list(self.strides)}"


class ScalarSpec(NamedTuple):
    """An input that arrives as a Python number with each launch instead of as device memory."""

    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        """A scalar has no axes."""
        return ()

    @property
    def strides(self) -> tuple[int, ...]:
        """A scalar has no axes."""
        return ()

    @property
    def ndim(self) -> int:
        """A scalar has no axes."""
        return 0

    @property
    def size(self) -> int:
        """One."""
        return 1

    @property
    def is_contiguous(self) -> bool:
        """True."""
        return True

    def __str__(self) -> str:
        return f"{self.dtype.name} number"


class Ref:
    """A spec placed in device memory: the form in which backends receive tensors. `offset` counts elements."""

    __slots__ = ("handle", "offset", "spec")

    def __init__(self, handle: Any, spec: Spec, offset: int = 0) -> None:
        self.handle = handle
        self.spec = spec
        self.offset = offset

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.spec.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return self.spec.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in elements."""
        return self.spec.strides

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.spec.shape)

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are contiguous in row-major order."""
        return is_contiguous(self.spec.shape, self.spec.strides)

    def __repr__(self) -> str:
        return f"Ref({self.handle!r}, {self.spec}, offset {self.offset})"


class View(NamedTuple):
    """A layout inside another: the new shape and strides, and how far the first element moved."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides. Axes of length 0 count as 1, so that every size has well-formed strides."""
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n if n > 1 else 1
    return tuple(reversed(strides))


def contiguous(dtype: DType, shape: tuple[int, ...]) -> Spec:
    """The row-major spec of `shape`."""
    return Spec(dtype, shape, contiguous_strides(shape))


def channels_last(dtype: DType, shape: tuple[int, ...]) -> Spec:
    """The spec of images (N, C, H, W) that are stored in the order (N, H, W, C)."""
    _, c, h, w = shape
    return Spec(dtype, shape, (h * w * c, 1, w * c, c))


def is_channels_last(spec: Spec) -> bool:
    """True if images (N, C, H, W) are stored in the order (N, H, W, C) without gaps."""
    if spec.ndim != 4:
        return False
    order = (0, 2, 3, 1)
    return is_contiguous(tuple(spec.shape[a] for a in order), tuple(spec.strides[a] for a in order))


@lru_cache(8192)
def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True if the elements are in row-major order without gaps; strides of axes of length 1 do not matter."""
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if stride != step:
                return 0 in shape
            step *= n
    return True


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether a layout is contiguous but for the order of its axes."""
    if is_contiguous(tuple(shape), tuple(strides)):
        return True
    order = axis_order(shape, strides)
    return is_contiguous(tuple(shape[i] for i in order), tuple(strides[i] for i in order))


def axis_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the axes from the longest stride to the shortest."""
    return tuple(sorted(range(len(shape)), key=lambda i: (-strides[i], -shape[i], i)))


def place(spec: Spec, view: View) -> Spec:
    """The spec of `view` taken inside a tensor of `spec`."""
    return Spec(spec.dtype, view.shape, view.strides, spec.aligned and view.offset % ALIGNMENT == 0)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The lowest and the highest element position that a view touches, relative to its offset; (0, -1) when empty."""
    if 0 in shape:
        return 0, -1
    spans = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(s for s in spans if s < 0), sum(s for s in spans if s > 0)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape under NumPy's broadcasting rules. Raises ValueError when there is none."""
    ndim = max((len(s) for s in shapes), default=0)
    out = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, ndim - len(shape)):
            if n != 1:
                if out[i] not in (1, n):
                    listed = " and ".join(str(s) for s in shapes)
                    raise ValueError(
                        f"shapes {listed} do not broadcast: axis {i - ndim} is {out[i]} in one and {n} in another"
                    )
                out[i] = n
    return tuple(out)


def broadcast_strides(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Strides that stretch `shape` to `target`: 0 on every stretched or new axis. Raises ValueError if impossible."""
    lead = len(target) - len(shape)
    if lead < 0:
        raise ValueError(f"shape {shape} has more axes than the target {target}")
    out = [0] * lead
    for n, stride, wanted in zip(shape, strides, target[lead:], strict=True):
        if n == wanted:
            out.append(stride)
        elif n == 1:
            out.append(0)
        else:
            raise ValueError(f"shape {shape} does not broadcast to {target}")
    return tuple(out)


def permute(spec: Spec, axes: tuple[int, ...]) -> View:
    """The view with axis `axes[i]` at position i."""
    return View(tuple(spec.shape[a] for a in axes), tuple(spec.strides[a] for a in axes))


def slice_view(spec: Spec, starts: tuple[int, ...], lengths: tuple[int, ...], steps: tuple[int, ...]) -> View:
    """The view of `lengths[i]` elements with first index `starts[i]` and step `steps[i]`, also negative, on each axis."""
    offset = sum(a * s for a, s, n in zip(starts, spec.strides, lengths, strict=True) if n)
    return View(lengths, tuple(s * k for s, k in zip(spec.strides, steps, strict=True)), offset)


def reshape(spec: Spec, shape: tuple[int, ...]) -> View | None:
    """The view of the same elements in row-major order as `shape`, or None where that takes a copy."""
    if spec.is_contiguous:
        return View(shape, contiguous_strides(shape))
    runs = collapse(spec.shape, (spec.strides,))
    lengths, (steps,) = runs
    strides: list[int] = []
    run, left = len(lengths) - 1, lengths[-1] if lengths else 1
    step = steps[-1] if lengths else 1
    for n in reversed(shape):
        if n == 1:
            strides.append(step)
            continue
        while left == 1 and run > 0:
            run -= 1
            left, step = lengths[run], steps[run]
        if left % n:
            return None
        strides.append(step)
        left //= n
        step *= n
    return View(shape, tuple(reversed(strides)))


def collapse(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Merge neighbouring axes that every one of `strides` walks as one, and drop axes of length 1.

    Returns the merged shape (at least one axis) and the strides of each operand on it.
    """
    axes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for i, n in enumerate(shape):
        if n == 1:
            continue
        if axes and all(out[-1] == s[i] * n for out, s in zip(steps, strides, strict=True)):
            axes[-1] *= n
            for out, s in zip(steps, strides, strict=True):
                out[-1] = s[i]
        else:
            axes.append(n)
            for out, s in zip(steps, strides, strict=True):
                out.append(s[i])
    if not axes:
        return (1,), tuple((1,) for _ in strides)
    return tuple(axes), tuple(tuple(s) for s in steps)


class AxisRangeError(ValueError, IndexError):
    """An axis that a tensor does not have. PyTorch and NumPy raise an IndexError for it, too."""


def normalize_axis(axis: int, ndim: int) -> int:
    """`axis` counted from the front. Raises AxisRangeError when it is out of range."""
    if not -ndim <= axis < ndim:
        raise AxisRangeError(f"axis {axis} is out of range for a tensor of {ndim} axes")
    return axis % ndim


def normalize_axes(axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """`axis` as sorted axes counted from the front; None means all. Raises ValueError on range or repetition.

    Without axes, 0 and -1 name none, as in NumPy and PyTorch.
    """
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if ndim == 0 and axes in ((0,), (-1,)):
        return ()
    out = tuple(sorted(normalize_axis(a, ndim) for a in axes))
    if len(set(out)) != len(out):
        raise ValueError(f"axis {axis} names an axis twice")
    return out
