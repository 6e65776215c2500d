"""Max pooling undone, and max pooling by random divisions of the axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn.functional.pooling import max_windows, window_of
from polyhal.nn.functional.spatial import Numbers, batched, on_batch, per_axis
from polyhal.random import rand
from polyhal.tensor import Tensor

_put_maxima = FUNCTIONS["put_maxima"]


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put maxima of sequences (N, C, L) back at their indices, as `max_unpool2d`."""
    return _unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put maxima (N, C, H, W) back at the `indices` of `max_pool2d`, with zeros elsewhere.

    Axes get the length (n - 1) stride - 2 padding + kernel, or that of `output_size`. Values with equal indices, from
    windows that overlap, are equal. Raises ShapeError.
    """
    return _unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put maxima of volumes (N, C, D, H, W) back at their indices, as `max_unpool2d`."""
    return _unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)


def _unpool(
    op: str,
    axes: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None,
    padding: Numbers,
    output_size: Sequence[int] | None,
) -> Tensor:
    if indices.shape != x.shape:
        raise ShapeError(message(op, f"indices of shape {indices.shape}", expected=f"{x.shape}, as the values have"))
    kernel, steps, sides, _ = window_of(axes, kernel_size, stride, padding)
    batch, single = batched(op, x, axes)
    default = [(n - 1) * s - 2 * p + k for n, k, s, p in zip(batch.shape[2:], kernel, steps, sides, strict=True)]
    lengths = tuple(default) if output_size is None else tuple(int(n) for n in tuple(output_size)[-axes:])
    if len(lengths) != axes or any(abs(n - d) >= s for n, d, s in zip(lengths, default, steps, strict=True)):
        raise ShapeError(message(op, f"output_size {output_size}", expected=f"about {tuple(default)}"))
    planes, total = batch.shape[:2], math.prod(lengths)
    flat = (planes[0] * planes[1], math.prod(batch.shape[2:]))
    out: Tensor = _put_maxima(batch.reshape(flat), indices.reshape(flat), total)
    out = out.reshape((*planes, *lengths))
    return out.squeeze(0) if single else out


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Numbers,
    output_size: Numbers | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Return maxima of windows of images (N, C, H, W) at pseudo-random steps of about H / H' and W / W'.

    The result has `output_size`, or the input's size times `output_ratio`. Each plane has steps of its own, from
    `_random_samples` (N, C, 2) in [0, 1) if given. Source: arXiv:1412.6071. Raises ShapeError.
    """
    return _fractional(
        "fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Numbers,
    output_size: Numbers | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Return maxima of windows of volumes (N, C, D, H, W) at pseudo-random steps, as `fractional_max_pool2d`."""
    return _fractional(
        "fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )


def _fractional(
    op: str,
    axes: int,
    x: Tensor,
    kernel_size: Numbers,
    output_size: Numbers | None,
    output_ratio: float | Sequence[float] | None,
    return_indices: bool,
    samples: Tensor | None,
) -> Any:
    kernel = per_axis(kernel_size, axes, "kernel_size")
    if (output_size is None) == (output_ratio is None):
        raise ShapeError(
            message(op, f"output_size {output_size} and output_ratio {output_ratio}", expected="one of them")
        )

    def function(batch: Tensor) -> Any:
        lengths = batch.shape[2:]
        if output_size is not None:
            sizes = per_axis(output_size, axes, "output_size")
        else:
            ratios = [output_ratio] * axes if isinstance(output_ratio, (int, float)) else list(output_ratio or ())
            sizes = tuple(int(n * float(r or 0.0)) for n, r in zip(lengths, ratios, strict=True))
        if any(out < 1 or out + k - 1 > n for n, k, out in zip(lengths, kernel, sizes, strict=True)):
            raise ShapeError(message(op, f"windows {kernel} and output {sizes} of an input of {lengths}"))
        planes = batch.shape[0] * batch.shape[1]
        drawn = rand((planes, axes), device=x.device) if samples is None else samples.reshape((-1, axes))[:planes]
        # In two dimensions PyTorch's samples name the width first.
        order = (1, 0) if axes == 2 else tuple(range(axes))
        places = [
            _fractional_places(drawn[:, order[i]], lengths[i], sizes[i], kernel[i]) for i in range(axes)
        ]  # per axis, the elements that the windows of each plane read
        return _max_of_places(batch, places, kernel, return_indices)

    return on_batch(op, x, axes, function)


def _fractional_places(sample: Tensor, length: int, size: int, kernel: int) -> Tensor:
    """Return elements (planes, size * kernel) of the windows along an axis. Source: PyTorch's `generate_intervals`."""
    step = (length - kernel) / (size - 1) if size > 1 else 0.0
    turn = ops.arange(0, size, 1, device=sample.device)
    shift = sample.reshape((-1, 1))
    starts = ops.floor((turn.cast(dtype=sample.dtype) + shift) * step) - ops.floor(shift * step)
    starts = ops.where(turn == size - 1, length - kernel, starts.cast(dtype=dtypes.int64))
    within = ops.arange(0, kernel, 1, device=sample.device)
    return (starts.unsqueeze(2) + within).reshape((sample.size, size * kernel))


def _max_of_places(x: Tensor, places: Sequence[Tensor], kernel: tuple[int, ...], return_indices: bool) -> Any:
    """Return maxima of consecutive runs of the elements that `places` names per axis and plane."""
    lengths, planes = x.shape[2:], x.shape[0] * x.shape[1]
    flat = x.reshape((planes, *lengths))
    for axis, at in enumerate(places, 1):
        shape = (*flat.shape[:axis], at.shape[1], *flat.shape[axis + 1 :])
        index = at.reshape((planes, *(at.shape[1] if i == axis else 1 for i in range(1, flat.ndim))))
        flat = ops.take_along_axis(flat, ops.broadcast_to(index, shape), axis)
    zeros, ones = (0,) * len(kernel), (1,) * len(kernel)
    out = max_windows(
        flat.reshape((*x.shape[:2], *flat.shape[1:])), (kernel, kernel, zeros, ones), False, return_indices
    )
    if not return_indices:
        return out
    values, positions = out
    rest, total, step = positions.reshape((planes, math.prod(positions.shape[2:]))), None, 1
    for at, n in zip(reversed(places), reversed(lengths), strict=True):
        upper = rest // at.shape[1]
        term = ops.take_along_axis(at, rest - upper * at.shape[1], 1) * step
        total = term if total is None else total + term
        rest, step = upper, step * n
    assert total is not None
    return values, total.reshape(positions.shape)
