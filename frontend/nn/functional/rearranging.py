"""Rearranging images: channels to pixels and back, channels among groups, windows to columns and back."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.returns import Returns, returns
from polyhal.hal.ops.top_level import top_level
from polyhal.nn.functional.padding import padded
from polyhal.nn.functional.spatial import Numbers, on_batch, per_axis
from polyhal.tensor import Tensor

_windows, _fold_windows = FUNCTIONS["windows"], FUNCTIONS["fold_windows"]


@top_level
@returns(Returns.COPY)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange channels to pixels: (..., C r r, H, W) to (..., C, H r, W r), where r is `upscale_factor`. Raises ShapeError.

    Source: arXiv:1609.05158.
    """
    r = upscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(message("pixel_shuffle", f"shape {input.shape}", expected=f"channels in multiples of {r * r}"))
    *lead, channels, height, width = input.shape
    channels //= r * r
    split = input.reshape((*lead, channels, r, r, height, width))
    k = len(lead) + 1
    return ops.permute(split, (*range(k), k + 2, k, k + 3, k + 1)).reshape((*lead, channels, height * r, width * r))


@top_level
@returns(Returns.COPY)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels as channels: (..., C, H r, W r) to (..., C r r, H, W), the inverse of `pixel_shuffle`. Raises ShapeError."""
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r:
        raise ShapeError(message("pixel_unshuffle", f"shape {input.shape}", expected=f"lengths in multiples of {r}"))
    *lead, channels, height, width = input.shape
    height, width = height // r, width // r
    split = input.reshape((*lead, channels, height, r, width, r))
    k = len(lead) + 1
    return ops.permute(split, (*range(k), k + 1, k + 3, k, k + 2)).reshape((*lead, channels * r * r, height, width))


@top_level
@returns(Returns.COPY)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave the groups of channels of (N, C, ...): the first of each group, then the second of each. Raises ShapeError.

    Source: arXiv:1707.01083.
    """
    if input.ndim < 3 or groups < 1 or input.shape[1] % groups:
        raise ShapeError(
            message("channel_shuffle", f"shape {input.shape}", expected=f"(N, C, ...) with C a multiple of {groups}")
        )
    n, channels, *rest = input.shape
    split = input.reshape((n, groups, channels // groups, *rest))
    return ops.transpose(split, 1, 2).reshape(input.shape)


@returns(Returns.COPY)
def unfold(
    input: Tensor, kernel_size: Numbers, dilation: Numbers = 1, padding: Numbers = 0, stride: Numbers = 1
) -> Tensor:
    """Return the windows of images (N, C, H, W) as columns (N, C kernel, windows), in the order of rows ("im2col")."""
    kernel, spread = per_axis(kernel_size, 2, "kernel_size"), per_axis(dilation, 2, "dilation")
    steps, sides = per_axis(stride, 2, "stride"), per_axis(padding, 2, "padding")

    def function(batch: Tensor) -> Tensor:
        view: Tensor = _windows(padded(batch, (sides[1], sides[1], sides[0], sides[0])), kernel, steps, spread)
        n, channels, down, across = view.shape[:4]
        columns = ops.permute(view, (0, 1, 4, 5, 2, 3))
        return columns.reshape((n, channels * kernel[0] * kernel[1], down * across))

    out: Tensor = on_batch("unfold", input, 2, function)
    return out


@returns(Returns.COPY)
def fold(
    input: Tensor,
    output_size: Numbers,
    kernel_size: Numbers,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    stride: Numbers = 1,
) -> Tensor:
    """Return the sum of columns (N, C kernel, windows), as `unfold` makes them, at the places of their windows: (N, C, H, W).

    Raises ShapeError.
    """
    size, kernel = per_axis(output_size, 2, "output_size"), per_axis(kernel_size, 2, "kernel_size")
    spread, steps = per_axis(dilation, 2, "dilation"), per_axis(stride, 2, "stride")
    sides = per_axis(padding, 2, "padding")
    lengths = tuple(n + 2 * p for n, p in zip(size, sides, strict=True))
    counts = tuple((n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(lengths, kernel, spread, steps, strict=True))

    def function(batch: Tensor) -> Tensor:
        n, rows, columns = batch.shape
        if rows % (kernel[0] * kernel[1]) or columns != counts[0] * counts[1]:
            expected = f"(N, C * {kernel[0] * kernel[1]}, {counts[0] * counts[1]})"
            raise ShapeError(message("fold", f"columns of shape {batch.shape}", expected=expected))
        split = batch.reshape((n, rows // (kernel[0] * kernel[1]), *kernel, *counts))
        whole: Tensor = _fold_windows(ops.permute(split, (0, 1, 4, 5, 2, 3)), lengths, steps, spread)
        return padded(whole, (-sides[1], -sides[1], -sides[0], -sides[0]))

    out: Tensor = on_batch("fold", input, 1, function)
    return out
