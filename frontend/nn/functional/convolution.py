"""Convolution over one to three axes, and transposed convolution, on the two-dimensional ops.

One axis is an image of height 1. Three axes are two: the depth of each window becomes channels of a two-dimensional
convolution of all slices at once, so that one kernel computes and accumulates the whole sum.
"""

from __future__ import annotations

from typing import Literal

from polyhal import functions as ops
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.returns import own
from polyhal.hal.ops.top_level import top_level
from polyhal.nn.functional.padding import padded
from polyhal.nn.functional.spatial import Numbers, on_batch, per_axis
from polyhal.tensor import Tensor

_windows, _fold_windows, _input_grad = (FUNCTIONS[n] for n in ("windows", "fold_windows", "conv2d_input_grad"))
Padding = Numbers | Literal["same", "valid"]
Axes = tuple[int, ...]


@top_level
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Padding = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of sequences (N, C, L) with kernels (K, C/groups, R), as `conv2d`."""
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Padding = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of images (N, C, H, W) with kernels (K, C/groups, R, S); (C, H, W) is a batch of one.

    `padding` adds zeros on both sides; "same" keeps the size (stride 1 only), "valid" adds none. Floats only.
    Raises ShapeError and UnsupportedDTypeError.
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@top_level
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Padding = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of volumes (N, C, D, H, W) with kernels (K, C/groups, Q, R, S), as `conv2d`.

    Takes Q times the memory of the input for a while.
    """
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _convolve(
    op: str,
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
) -> Tensor:
    _check_weight(op, axes, weight)
    steps, spread = per_axis(stride, axes, "stride"), per_axis(dilation, axes, "dilation")
    if isinstance(padding, str):
        frame = _named_padding(op, padding, weight.shape[2:], steps, spread)
        sides = tuple(a for a, _ in frame)
        if any(a != b for a, b in frame):
            x = padded(x, [w for pair in reversed(frame) for w in pair])
            sides = (0,) * axes
    else:
        sides = per_axis(padding, axes, "padding")
    function = {1: _conv1d, 2: _conv2d, 3: _conv3d}[axes]
    out = on_batch(op, x, axes, lambda batch: function(batch, weight, bias, steps, sides, spread, groups))
    return own(out)  # type: ignore[no-any-return]


def _check_weight(op: str, axes: int, weight: Tensor) -> None:
    if weight.ndim != axes + 2:
        raise ShapeError(message(op, f"a weight of shape {weight.shape}", expected=f"{axes + 2} axes"))


def _named_padding(op: str, name: str, kernel: Axes, stride: Axes, dilation: Axes) -> list[tuple[int, int]]:
    """Padding (before, after) per axis for an output as large as the input ("same"), or none."""
    if name == "valid":
        return [(0, 0)] * len(kernel)
    if name != "same":
        raise ShapeError(message(op, f"padding {name!r}", expected="numbers, 'same' or 'valid'"))
    if any(s != 1 for s in stride):
        problem = f"padding 'same' with stride {stride}"
        raise ShapeError(message(op, problem, expected="stride 1", fix="give the padding in numbers"))
    totals = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    return [(t // 2, t - t // 2) for t in totals]


def _conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Axes, padding: Axes, dilation: Axes, groups: int
) -> Tensor:
    x, weight = x.unsqueeze(2), weight.unsqueeze(2)
    return _conv2d(x, weight, bias, (1, *stride), (0, *padding), (1, *dilation), groups).squeeze(2)


def _conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Axes, padding: Axes, dilation: Axes, groups: int
) -> Tensor:
    return ops.conv2d(x, weight, bias, stride, padding, dilation, groups)


def _conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Axes, padding: Axes, dilation: Axes, groups: int
) -> Tensor:
    filters, depth, (n, channels) = weight.shape[0], weight.shape[2], x.shape[:2]
    x = padded(x, (0, 0, 0, 0, padding[0], padding[0]))
    deep: Tensor = _windows(ops.permute(x, (0, 1, 3, 4, 2)), (depth,), stride[:1], dilation[:1])
    slices, (height, width) = deep.shape[4], x.shape[3:]
    planes = ops.permute(deep, (0, 4, 1, 5, 2, 3)).reshape((n * slices, channels * depth, height, width))
    flat = weight.reshape((filters, weight.shape[1] * depth, *weight.shape[3:]))
    out = _conv2d(planes, flat, bias, stride[1:], padding[1:], dilation[1:], groups)
    return ops.contiguous(ops.permute(out.reshape((n, slices, *out.shape[1:])), (0, 2, 1, 3, 4)))


@top_level
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """Compute the transpose of `conv1d`: sequences (N, C, L) with kernels (C, K/groups, R), as `conv_transpose2d`."""
    return _transposed("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@top_level
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """Compute the transpose of `conv2d`, which is its gradient: images (N, C, H, W) with kernels (C, K/groups, R, S).

    Axes get the length (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1. `output_padding` chooses
    among the lengths that the convolution would take to n, and is less than the stride or the dilation. Floats only.
    Raises ShapeError and UnsupportedDTypeError.
    """
    return _transposed("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@top_level
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """Compute the transpose of `conv3d`: volumes (N, C, D, H, W) with kernels (C, K/groups, Q, R, S), as `conv_transpose2d`."""
    return _transposed("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _transposed(
    op: str,
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Numbers,
    padding: Numbers,
    output_padding: Numbers,
    groups: int,
    dilation: Numbers,
) -> Tensor:
    _check_weight(op, axes, weight)
    steps, spread = per_axis(stride, axes, "stride"), per_axis(dilation, axes, "dilation")
    sides, extra = per_axis(padding, axes, "padding"), per_axis(output_padding, axes, "output_padding")
    if any(e < 0 or e >= max(s, d) for e, s, d in zip(extra, steps, spread, strict=True)):
        raise ShapeError(
            message(op, f"output_padding {extra}", expected=f"less than stride {steps} or dilation {spread}")
        )
    if x.ndim > axes and x.shape[-axes - 1] != weight.shape[0]:
        raise ShapeError(message(op, f"{x.shape[-axes - 1]} channels", expected=f"{weight.shape[0]}, as in the weight"))
    if bias is not None and bias.shape != (weight.shape[1] * groups,):
        raise ShapeError(message(op, f"a bias of shape {bias.shape}", expected=f"({weight.shape[1] * groups},)"))
    function = {1: _transposed1d, 2: _transposed2d, 3: _transposed3d}[axes]
    out: Tensor = on_batch(op, x, axes, lambda batch: function(batch, weight, steps, sides, extra, spread, groups))
    return out if bias is None else out + bias.reshape((-1, *[1] * axes))


def _transposed1d(
    x: Tensor, weight: Tensor, stride: Axes, padding: Axes, extra: Axes, dilation: Axes, groups: int
) -> Tensor:
    x, weight = x.unsqueeze(2), weight.unsqueeze(2)
    return _transposed2d(x, weight, (1, *stride), (0, *padding), (0, *extra), (1, *dilation), groups).squeeze(2)


def _transposed2d(
    x: Tensor, weight: Tensor, stride: Axes, padding: Axes, extra: Axes, dilation: Axes, groups: int
) -> Tensor:
    if any(e >= s for e, s in zip(extra, stride, strict=True)):
        # No convolution takes such a length to this one: make all that the kernel reaches, and crop or extend that.
        full = _transposed2d(x, weight, stride, (0, 0), (0, 0), dilation, groups)
        return padded(full, [w for p, e in reversed(list(zip(padding, extra, strict=True))) for w in (-p, e - p)])
    lengths = [
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, k, s, p, e, d in zip(x.shape[2:], weight.shape[2:], stride, padding, extra, dilation, strict=True)
    ]
    shape = (x.shape[0], weight.shape[1] * groups, *lengths)
    out: Tensor = _input_grad(x, weight, shape, stride, padding, dilation, groups)
    return out


def _transposed3d(
    x: Tensor, weight: Tensor, stride: Axes, padding: Axes, extra: Axes, dilation: Axes, groups: int
) -> Tensor:
    (n, channels, slices), (_, filters, depth) = x.shape[:3], weight.shape[:3]
    planes = ops.permute(x, (0, 2, 1, 3, 4)).reshape((n * slices, channels, *x.shape[3:]))
    flat = weight.reshape((channels, filters * depth, *weight.shape[3:]))
    out = _transposed2d(planes, flat, stride[1:], padding[1:], extra[1:], dilation[1:], groups)
    deep = out.reshape((n, slices, filters * groups, depth, *out.shape[2:]))
    length = (slices - 1) * stride[0] + dilation[0] * (depth - 1) + 1
    folded: Tensor = _fold_windows(ops.permute(deep, (0, 2, 4, 5, 1, 3)), (length,), stride[:1], dilation[:1])
    return ops.contiguous(ops.permute(padded(folded, (-padding[0], extra[0] - padding[0])), (0, 1, 4, 2, 3)))
