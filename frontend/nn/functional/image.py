"""Convolution, pooling and padding of images (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from polyhal import functions as ops
from polyhal.hal.errors import ShapeError, message
from polyhal.tensor import Tensor

Pair = int | tuple[int, int]
Padding = Pair | Literal["same", "valid"]


def pair(value: Pair | Sequence[int], name: str) -> tuple[int, int]:
    """Expand one number for both axes to two. Raises ShapeError."""
    if isinstance(value, int):
        return value, value
    values = tuple(int(v) for v in value)
    if len(values) != 2:
        raise ShapeError(message(None, f"{name} is {value}", expected="one integer or two"))
    return values[0], values[1]


def pad(x: Tensor, widths: Sequence[int], value: float = 0.0) -> Tensor:
    """Add a border of `value`; `widths` are (before, after) pairs from the LAST axis on, as in PyTorch.

    Negative widths crop. Raises ShapeError.
    """
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ShapeError(
            message("pad", f"{len(widths)} widths for {x.ndim} axes", expected="pairs for at most all axes")
        )
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + [
        (widths[i], widths[i + 1]) for i in range(len(widths) - 2, -1, -2)
    ]
    if any(w < 0 for p in pairs for w in p):
        x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pairs, strict=True))]
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    fill: Any = value
    return ops.pad(x, tuple(pairs), fill)


def _same(
    kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Padding (before, after) on both axes for an output as large as the input."""
    if stride != (1, 1):
        raise ShapeError(
            message(
                "conv2d", f"padding 'same' with stride {stride}", expected="stride 1", fix="give the padding in numbers"
            )
        )
    (h, w) = ((k - 1) * d for k, d in zip(kernel, dilation, strict=True))
    return (h // 2, h - h // 2), (w // 2, w - w // 2)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of images (N, C, H, W) with kernels (K, C/groups, R, S); (C, H, W) is a batch of one.

    `padding` adds zeros on both sides; "same" keeps the size (stride 1 only), "valid" adds none. Raises ShapeError.
    """
    steps, spread = pair(stride, "stride"), pair(dilation, "dilation")
    single = x.ndim == 3
    if single:
        x = x[None]
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ShapeError(message("conv2d", f"padding {padding!r}", expected="numbers, 'same' or 'valid'"))
        frame = ((0, 0), (0, 0))
        if padding == "same":
            frame = _same((weight.shape[2], weight.shape[3]), steps, spread)
        if all(a == b for a, b in frame):
            sides = (frame[0][0], frame[1][0])
        else:
            x, sides = ops.pad(x, ((0, 0), (0, 0), *frame), 0), (0, 0)
    else:
        sides = pair(padding, "padding")
    out: Tensor = ops.conv2d(x, weight, bias, steps, sides, spread, groups)
    return out[0] if single else out


def max_pool2d(
    x: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1
) -> Tensor:
    """The maximum of each window; windows are `stride` (by default their size) apart."""
    kernel = pair(kernel_size, "kernel_size")
    steps = kernel if stride is None else pair(stride, "stride")
    single = x.ndim == 3
    out: Tensor = ops.max_pool2d(
        x[None] if single else x, kernel, steps, pair(padding, "padding"), pair(dilation, "dilation")
    )
    return out[0] if single else out


def avg_pool2d(
    x: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, count_include_pad: bool = True
) -> Tensor:
    """The mean of each window; with `count_include_pad` the zeros of the padding count as elements."""
    kernel = pair(kernel_size, "kernel_size")
    steps = kernel if stride is None else pair(stride, "stride")
    single = x.ndim == 3
    out: Tensor = ops.avg_pool2d(
        x[None] if single else x, kernel, steps, pair(padding, "padding"), bool(count_include_pad)
    )
    return out[0] if single else out


def adaptive_avg_pool2d(x: Tensor, output_size: int | tuple[int | None, int | None]) -> Tensor:
    """Means over an even division of the image into `output_size` (H, W) parts; None keeps an axis.

    Part i of n is from floor(i L / n) to ceil((i + 1) L / n), so that neighbours overlap if n does not divide L.
    """
    sizes = (output_size, output_size) if isinstance(output_size, int) else output_size
    parts = tuple(n if size is None else size for n, size in zip(x.shape[-2:], sizes, strict=True))
    if parts == (1, 1):
        return ops.mean(x, (-2, -1), True)
    if all(n % p == 0 for n, p in zip(x.shape[-2:], parts, strict=True)):
        return avg_pool2d(x, (x.shape[-2] // parts[0], x.shape[-1] // parts[1]))
    # The mean over a rectangle is the mean over its rows of the means over its columns.
    for axis, n in zip((-2, -1), parts, strict=True):
        x = _divide_axis(x, axis, n)
    return x


def _divide_axis(x: Tensor, axis: int, parts: int) -> Tensor:
    length = x.shape[axis]
    if parts == length:
        return x
    means = []
    for i in range(parts):
        part = slice(i * length // parts, -(-(i + 1) * length // parts))
        index = (..., part, slice(None)) if axis == -2 else (..., part)
        means.append(ops.mean(x[index], axis, True))
    return ops.concat(means, axis)
