"""Two-dimensional convolution and its gradients with respect to input and weight."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    Output,
    Params,
    Specs,
    Tolerance,
    declare,
    first_tensor,
    linear_in,
    reads,
    tensor_at,
)
from polyhal.hal.ops.layout.axes import flip, transpose
from polyhal.hal.ops.layout.regions import pad
from polyhal.hal.ops.layout.slicing import slice_, unslice
from polyhal.hal.ops.layout.sliding_windows import windows
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.matmul import op_matmul, sum_dtype
from polyhal.hal.ops.nn.convolution_samples import ERRORS, input_grad_samples, samples, weight_grad_samples
from polyhal.hal.ops.nn.window_shape import Pair, convolution_shape, pair, require_floats, window_params
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike

# --- forward --------------------------------------------------------------------------------------------------------


def _np_windows(
    x: Array, kernel: Pair, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """All windows of a padded image: (N, C, OH, OW, R, S)."""
    x = np.pad(np.asarray(x), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _pairs(*values: Any) -> list[Pair]:
    return [(v, v) if isinstance(v, int) else tuple(v) for v in values]


def _conv2d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    groups: int = 1,
) -> Any:
    """Cross-correlation of x (N, C, H, W) with weight (K, C/groups, R, S), plus bias (K,)."""
    stride, padding, dilation = _pairs(stride, padding, dilation)
    weight = np.asarray(weight)
    view = _np_windows(x, weight.shape[2:], stride, padding, dilation)
    n, c, oh, ow, r, s = view.shape
    k = weight.shape[0]
    rows = (
        view.reshape(n, groups, c // groups, oh, ow, r, s)
        .transpose(1, 0, 3, 4, 2, 5, 6)
        .reshape(groups, n * oh * ow, -1)
    )
    out = np.matmul(rows, weight.reshape(groups, k // groups, -1).transpose(0, 2, 1))
    out = out.reshape(groups, n, oh, ow, k // groups).transpose(1, 0, 4, 2, 3).reshape(n, k, oh, ow)
    return out if bias is None else out + np.reshape(bias, (1, -1, 1, 1))


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("conv2d", specs)
    x, weight, bias = tensor_at(specs, 0), tensor_at(specs, 1), specs[2]
    shape = convolution_shape(x.shape, weight.shape, params)
    if bias is not None and bias.shape != shape[1:2]:
        raise ValueError(f"bias {bias.shape} does not fit {shape[1]} output channels")
    return [(dtypes.promote(x.dtype, weight.dtype), shape)]


def _columns(x: TensorLike, kernel: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Any:
    """im2col, every window as a row: (groups, N*OH*OW, C/groups*R*S)."""
    if padding != (0, 0):
        x = pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    view = windows(x, kernel, stride, dilation)
    n, c, oh, ow, r, s = view.shape
    # Split the channels before the copy: in a view of a padded image they can always be split.
    grouped = permute(view, (1, 0, 2, 3, 4, 5))
    rows = reshape(grouped, (groups, c // groups, n * oh * ow, r * s))
    return reshape(permute(rows, (0, 2, 1, 3)), (groups, n * oh * ow, c // groups * r * s))


def _decomposed(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Any:
    k, c, r, s = weight.shape
    n, _, oh, ow = convolution_shape(
        x.shape, weight.shape, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    )
    rows = _columns(x, (r, s), stride, padding, dilation, groups)
    out = op_matmul(rows, transpose(reshape(weight, (groups, k // groups, c * r * s))))
    out = reshape(permute(reshape(out, (groups, n, oh * ow, k // groups)), (1, 0, 3, 2)), (n, k, oh, ow))
    return out if bias is None else out + reshape(bias, (1, k, 1, 1))


# --- gradient of the input ------------------------------------------------------------------------------------------


def _conv2d_input_grad(
    grad: Array,
    weight: Array,
    *,
    shape: tuple[int, ...],
    stride: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    groups: int = 1,
) -> Any:
    """Gradient of conv2d with respect to its input of `shape`: the transposed convolution."""
    (sh, sw), (ph, pw), (dh, dw) = _pairs(stride, padding, dilation)
    grad, weight = np.asarray(grad), np.asarray(weight)
    n, k, oh, ow = grad.shape
    c = shape[1]
    out = np.zeros((n, c, shape[2] + 2 * ph, shape[3] + 2 * pw), np.result_type(grad, weight))
    rows = grad.reshape(n, groups, k // groups, oh * ow).transpose(1, 0, 3, 2).reshape(groups, n * oh * ow, k // groups)
    columns = np.matmul(rows, weight.reshape(groups, k // groups, -1))  # of the padded input, a row each
    parts = columns.reshape(groups, n, oh, ow, c // groups, *weight.shape[2:]).transpose(5, 6, 1, 0, 4, 2, 3)
    for i, j in np.ndindex(*weight.shape[2:]):
        place = out[:, :, i * dh : i * dh + sh * (oh - 1) + 1 : sh, j * dw : j * dw + sw * (ow - 1) + 1 : sw]
        place += parts[i, j].reshape(n, c, oh, ow)
    return out[:, :, ph : ph + shape[2], pw : pw + shape[3]]


def _infer_input_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("conv2d_input_grad", specs)
    g, weight = tensor_at(specs, 0), tensor_at(specs, 1)
    params["shape"] = tuple(params["shape"])
    expected = convolution_shape(params["shape"], weight.shape, params)
    if g.shape != expected:
        raise ValueError(f"the gradient has shape {g.shape}; expected {expected}")
    return [(dtypes.promote(g.dtype, weight.dtype), params["shape"])]


def _input_grad_decomposed(
    g: TensorLike,
    weight: TensorLike,
    *,
    shape: tuple[int, ...],
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Any:
    """Transposed convolution: convolve the gradient, dilated by the stride, with the flipped kernel."""
    k, c, r, s = weight.shape
    flipped = reshape(flip(weight, (2, 3)), (groups, k // groups, c, r, s))
    flipped = reshape(permute(flipped, (0, 2, 1, 3, 4)), (groups * c, k // groups, r, s))
    spans = [(n - 1) * d for n, d in zip((r, s), dilation, strict=True)]
    # Zeros before the gradient for the reach of the kernel; the padding is cut off at the end.
    total = [n + 2 * p + span for n, p, span in zip(shape[2:], padding, spans, strict=True)]
    dilated = unslice(g, (*g.shape[:2], *total), (0, 0, *spans), (1, 1, *stride))
    full = conv2d(dilated, flipped, None, (1, 1), (0, 0), dilation, groups)
    return slice_(full, (0, 0, *padding), shape, (1, 1, 1, 1))


# --- gradient of the weight -----------------------------------------------------------------------------------------


def _conv2d_weight_grad(
    grad: Array,
    x: Any,
    *,
    kernel: Any,
    stride: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    out_dtype: Any = None,
) -> Any:
    """Gradient of conv2d with respect to its weight, whose window is `kernel`.

    `out_dtype` makes it wider than the operands, as that of `matmul`.
    """
    stride, padding, dilation = _pairs(stride, padding, dilation)
    if out_dtype is not None:
        grad, x = np.asarray(grad).astype(np.float64), np.asarray(x).astype(np.float64)
    grad = np.asarray(grad)
    view = _np_windows(x, kernel, stride, padding, dilation)
    n, c, oh, ow, r, s = view.shape
    k = grad.shape[1]
    grouped = view.reshape(n, groups, c // groups, oh, ow, r, s)
    out = np.einsum("ngkhw,ngchwrs->gkcrs", grad.reshape(n, groups, k // groups, oh, ow), grouped, optimize=True)
    return out.reshape(k, c // groups, r, s)


def _infer_weight_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("conv2d_weight_grad", specs)
    g, x = tensor_at(specs, 0), tensor_at(specs, 1)
    params["kernel"] = pair(params["kernel"], "kernel", 1)
    groups = window_params(params)[3]
    weight = (g.shape[1], x.shape[1] // groups, *params["kernel"])
    expected = convolution_shape(x.shape, weight, params)
    if g.shape != expected:
        raise ValueError(f"the gradient has shape {g.shape}; expected {expected}")
    return [(sum_dtype(dtypes.promote(g.dtype, x.dtype), params), weight)]


def _weight_grad_decomposed(
    g: TensorLike,
    x: TensorLike,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    out_dtype: Any,
) -> Any:
    n, k, oh, ow = g.shape
    rows = _columns(x, kernel, stride, padding, dilation, groups)
    left = reshape(
        permute(reshape(g, (n, groups, k // groups, oh * ow)), (1, 2, 0, 3)), (groups, k // groups, n * oh * ow)
    )
    return reshape(op_matmul(left, rows, out_dtype), (k, x.shape[1] // groups, *kernel))


# --- declarations ---------------------------------------------------------------------------------------------------


def _terms(specs: Specs, params: Params) -> int:
    weight = tensor_at(specs, 1)
    return int(np.prod(weight.shape[1:]))


def _input_terms(specs: Specs, params: Params) -> int:
    weight = tensor_at(specs, 1)
    return weight.shape[0] * weight.shape[2] * weight.shape[3]


def _weight_terms(specs: Specs, params: Params) -> int:
    g = first_tensor(specs)
    return g.size // max(g.shape[1], 1)


# The three ops are bilinear: the gradients of each are the other two.


@linear_in("grad", "weight")
@reads(grad="weight", weight="grad")
def _input_grad_rule(
    g: TensorLike,
    grad: TensorLike | None,
    weight: TensorLike | None,
    weight_spec: Spec,
    needs: tuple[bool, ...],
    *,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Any:
    return (
        conv2d(g, weight, None, stride, padding, dilation, groups) if needs[0] else None,
        conv2d_weight_grad(grad, g, weight_spec.shape[2:], stride, padding, dilation, groups) if needs[1] else None,
    )


@reads(grad="x", x="grad")
def _weight_grad_rule(
    g: TensorLike,
    grad: Any,
    x: TensorLike,
    x_spec: Spec,
    needs: tuple[bool, ...],
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    out_dtype: Any,
) -> Any:
    if out_dtype is not None:
        g = cast(g, dtype=x_spec.dtype)
    return (
        conv2d(x, g, None, stride, padding, dilation, groups) if needs[0] else None,
        conv2d_input_grad(grad, g, x_spec.shape, stride, padding, dilation, groups) if needs[1] else None,
    )


conv2d_input_grad = declare(
    _conv2d_input_grad,
    name="conv2d_input_grad",
    family="convolution",
    infer=_infer_input_grad,
    lowering=Decompose(_input_grad_decomposed),
    gradient=_input_grad_rule,
    samples=input_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, terms=_input_terms),
    flops=lambda specs, outs, params: 2 * tensor_at(specs, 0).size * math.prod(tensor_at(specs, 1).shape[1:]),
    settings=("precision",),
    autocast=Autocast.HALF,
)
conv2d_weight_grad = declare(
    _conv2d_weight_grad,
    name="conv2d_weight_grad",
    family="convolution",
    infer=_infer_weight_grad,
    lowering=Decompose(_weight_grad_decomposed),
    gradient=_weight_grad_rule,
    samples=weight_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, terms=_weight_terms),
    flops=lambda specs, outs, params: 2 * tensor_at(specs, 0).size * math.prod(outs[0].shape[1:]),
    settings=("precision",),
    autocast=Autocast.HALF,
)


@linear_in("x", "weight")
@reads(x="weight", weight="x", bias="")
def _rule(
    g: TensorLike,
    x: TensorLike | None,
    weight: TensorLike | None,
    x_spec: Spec,
    weight_spec: Spec,
    needs: tuple[bool, ...],
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Any:
    dx = conv2d_input_grad(g, weight, x_spec.shape, stride, padding, dilation, groups) if needs[0] else None
    dw = conv2d_weight_grad(g, x, weight_spec.shape[2:], stride, padding, dilation, groups) if needs[1] else None
    return dx, dw, sum_(g, (0, 2, 3)) if len(needs) > 2 and needs[2] else None


conv2d = declare(
    _conv2d,
    name="conv2d",
    family="convolution",
    infer=_infer,
    lowering=Decompose(_decomposed),
    gradient=_rule,
    samples=samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, terms=_terms),
    errors=ERRORS,
    flops=lambda specs, outs, params: 2 * outs[0].size * int(np.prod(tensor_at(specs, 1).shape[1:])),
    settings=("precision",),
    autocast=Autocast.HALF,
)
