"""Quantized tensors: linear scales, and products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.element_types import device_dtype, numpy_dtype
from polyhal.onnx.evaluation_values import as_tensor, to_host
from polyhal.onnx.narrow_types import is_integral, is_narrow, limits, narrowed
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.convolution import conv
from polyhal.tensor import Tensor


def _spread(v: Value, x: Value, axis: int, block_size: int) -> Any:
    """Return scales in a shape that broadcasts to `x`: one for all, one for each index of an axis, or one for each block."""
    if v is None or v.ndim == 0 or (v.ndim == 1 and v.shape[0] == 1):
        return v if v is None or v.ndim == 0 else ph.reshape(v, ())
    if v.ndim == 1 and not block_size:
        return ph.reshape(v, tuple(-1 if a == axis % x.ndim else 1 for a in range(x.ndim)))
    size = block_size or -(-x.shape[axis] // v.shape[axis])
    return ph.narrow(ph.repeat_interleave(v, size, axis), axis, 0, x.shape[axis])


@operator("QuantizeLinear", raw=True)
def quantize(
    x: Value,
    scale: Value,
    zero: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    node: NodeFacts,
) -> Any:
    dtype = numpy_dtype(output_dtype) if output_dtype else np.dtype(np.uint8)
    if zero is not None:
        dtype = zero.dtype.numpy if isinstance(zero, Tensor) else zero.dtype
    if dtype is None or not (is_narrow(dtype) or is_integral(dtype)):
        raise TypeError(
            "results of integers with 2 to 16 bits and of floating-point formats with 4 or 8 bits are supported"
        )
    x, scale, zero = as_tensor(x, node), as_tensor(_readable(scale), node), _readable(zero)
    wide = x.to(ph.float32) if x.dtype is not ph.float64 else x
    scaled = wide / _spread(scale, x, axis, block_size).to(wide.dtype)
    if is_integral(dtype):
        scaled = ph.round(scaled)
    if zero is not None:
        scaled = scaled + _spread(as_tensor(zero, node), x, axis, block_size).to(wide.dtype)
    if is_narrow(dtype):
        scaled = ph.clip(scaled, *limits(dtype)) if is_integral(dtype) else scaled
        return narrowed(to_host(scaled), dtype, saturate=bool(saturate))
    bounds = ph.iinfo(device_dtype(dtype))
    return ph.clip(scaled, float(bounds.min), float(bounds.max)).to(device_dtype(dtype))


@operator("DequantizeLinear", raw=True)
def dequantize(
    x: Value,
    scale: Value,
    zero: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    node: NodeFacts,
) -> Any:
    x, scale, zero = map(_readable, (x, scale, zero))
    x, scale = as_tensor(x, node), as_tensor(scale, node)
    out = x.to(ph.float32)
    if zero is not None:
        out = out - _spread(as_tensor(zero, node).to(ph.float32), x, axis, block_size)
    found = numpy_dtype(output_dtype) if output_dtype else None
    target = scale.dtype if found is None else device_dtype(found)
    return (out * _spread(scale, x, axis, block_size).to(ph.float32)).to(target)


def _readable(v: Value) -> Any:
    """Return an array of narrow numbers, which tensors cannot store, in a dtype that contains them."""
    return v.astype(np.float32) if isinstance(v, np.ndarray) and is_narrow(v.dtype) else v


def _centered(x: Tensor, zero: Value, axis: int | None = None) -> Any:
    wide = x.to(ph.float32)
    if zero is None:
        return wide
    zero = zero.to(ph.float32)
    if zero.ndim == 1 and axis is not None and zero.shape[0] > 1:
        zero = ph.reshape(zero, tuple(-1 if a == axis % x.ndim else 1 for a in range(x.ndim)))
    elif zero.ndim == 1 and zero.shape[0] == 1:
        zero = ph.reshape(zero, ())
    return wide - zero


@operator("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Value = None, b_zero: Value = None) -> Any:
    # Sums of up to 256 products of 8 bits are exact in float32; longer ones are computed in integers.
    if a.shape[-1] <= 256:
        return ph.matmul(_centered(a, a_zero, -2), _centered(b, b_zero, -1)).to(ph.int32)
    return ph.matmul(_centered(a, a_zero, -2).to(ph.int32), _centered(b, b_zero, -1).to(ph.int32))


@operator("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Any:
    product = matmul_integer(a, b, a_zero, b_zero).to(ph.float32)
    scales = a_scale.to(ph.float32) * b_scale.to(ph.float32) / y_scale.to(ph.float32)
    return _requantized(product * scales, y_zero)


def _requantized(x: Value, zero: Tensor) -> Any:
    limits = ph.iinfo(zero.dtype)
    moved = ph.round(x) + ph.reshape(zero.to(ph.float32), ())
    return ph.clip(moved, float(limits.min), float(limits.max)).to(zero.dtype)


@operator("ConvInteger")
def conv_integer(x: Tensor, w: Tensor, x_zero: Value = None, w_zero: Value = None, **attributes: Value) -> Any:
    return conv(_centered(x, x_zero), _centered(w, w_zero, 0), **attributes).to(ph.int32)


@operator("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    **attributes: Value,
) -> Any:
    out = conv(_centered(x, x_zero), _centered(w, w_zero, 0), **attributes)
    if bias is not None:
        out = out + ph.reshape(bias.to(ph.float32), (-1, *[1] * (x.ndim - 2)))
    scales = ph.reshape(x_scale * w_scale / y_scale, (-1, *[1] * (x.ndim - 2)) if w_scale.numel() > 1 else ())
    return _requantized(out * scales, y_zero)
