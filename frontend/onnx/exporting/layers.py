"""Products, convolutions, pooling, norms and attention."""

from __future__ import annotations

import math

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.errors import UnsupportedOpError, message
from polyhal.onnx.exporting.writer import ExportedOp, Name, exported


@exported("matmul")
def matmul(call: ExportedOp) -> Name:
    """Write a product."""
    dtype = call.outputs[0].dtype
    return call.write("MatMul", call.name(0, dtype), call.name(1, dtype))


@exported("linear")
def linear(call: ExportedOp) -> Name:
    """Write a product with a transposed matrix, and a sum."""
    x, weight = call.name(0), call.name(1)
    if len(call.shape()) == 2:
        inputs = [x, weight, *([call.name(2)] if call.has(2) else [])]
        return call.write("Gemm", *inputs, transB=1)
    product = call.write("MatMul", x, call.write("Transpose", weight, perm=[1, 0]))
    return call.write("Add", product, call.name(2)) if call.has(2) else product


@exported("conv2d")
def conv2d(call: ExportedOp) -> Name:
    """Write a convolution."""
    p = call.params
    inputs = [call.name(i) for i in range(call.count) if call.has(i)]
    return call.write(
        "Conv",
        *inputs,
        strides=list(p["stride"]),
        pads=list(p["padding"]) * 2,
        dilations=list(p["dilation"]),
        group=p["groups"],
    )


@exported("conv2d_input_grad")
def conv2d_input_grad(call: ExportedOp) -> Name:
    """Write a transposed convolution, whose result has a given shape."""
    p, result = call.params, call.outputs[0].shape[2:]
    added = []
    for n, s, k, d, pad, length in zip(
        call.shape(0)[2:], p["stride"], call.shape(1)[2:], p["dilation"], p["padding"], result, strict=True
    ):
        added.append(length - ((n - 1) * s + (k - 1) * d + 1 - 2 * pad))
    return call.write(
        "ConvTranspose",
        call.name(0),
        call.name(1),
        strides=list(p["stride"]),
        pads=list(p["padding"]) * 2,
        dilations=list(p["dilation"]),
        group=p["groups"],
        output_padding=added,
    )


@exported("max_pool2d")
def max_pool2d(call: ExportedOp) -> Name:
    """Write a maximum over windows."""
    p = call.params
    return call.write(
        "MaxPool",
        call.name(),
        kernel_shape=list(p["kernel"]),
        strides=list(p["stride"] or p["kernel"]),
        pads=list(p["padding"]) * 2,
        dilations=list(p["dilation"]),
        ceil_mode=int(p["ceil_mode"]),
    )


@exported("avg_pool2d")
def avg_pool2d(call: ExportedOp) -> Name:
    """Write a mean over windows."""
    p = call.params
    divided = p["divisor"] is not None
    mean = call.write(
        "AveragePool",
        call.name(),
        kernel_shape=list(p["kernel"]),
        strides=list(p["stride"] or p["kernel"]),
        pads=list(p["padding"]) * 2,
        ceil_mode=int(p["ceil_mode"]),
        count_include_pad=int(p["count_include_pad"] or divided),
    )
    if not divided:
        return mean
    if p["ceil_mode"]:
        problem = "avg_pool2d with divisor_override and ceil_mode has no form in ONNX"
        raise UnsupportedOpError(message("onnx", problem, fix="leave one of them out"))
    return call.write("Mul", mean, call.constant(math.prod(p["kernel"]) / p["divisor"], call.dtype()))


@exported("softmax")
def softmax(call: ExportedOp) -> Name:
    """Write a softmax."""
    return call.write("Softmax", call.name(), axis=call.params["axis"])


@exported("log_softmax")
def log_softmax(call: ExportedOp) -> Name:
    """Write a logarithm of a softmax."""
    return call.write("LogSoftmax", call.name(), axis=call.params["axis"])


@exported("layer_norm")
def layer_norm(call: ExportedOp) -> tuple[Name, ...]:
    """Write a layer norm with its statistics."""
    axes, ndim = call.params["axes"], len(call.shape())
    scale = call.name(1, call.dtype()) if call.has(1) else _ones(call, axes)
    inputs = [call.name(), scale, *([call.name(2, call.dtype())] if call.has(2) else [])]
    attributes = {"axis": ndim - axes, "epsilon": float(call.params["eps"])}
    out, mean, deviation = call.writer.add("LayerNormalization", inputs, 3, attributes)
    shapes = [spec.shape for spec in call.outputs[1:]]
    return _typed(call, out), call.reshape(mean, shapes[0]), call.reshape(deviation, shapes[1])


def _ones(call: ExportedOp, axes: int) -> Name:
    return call.constant(np.ones(call.shape()[len(call.shape()) - axes :]), call.dtype())


def _typed(call: ExportedOp, name: Name) -> Name:
    return name if call.dtype() is call.outputs[0].dtype else call.cast(name, call.outputs[0].dtype)


@exported("rms_norm")
def rms_norm(call: ExportedOp) -> Name:
    """Write a division by the root of a mean of squares, computed in float32."""
    axes = call.constant([-1 - i for i in range(call.params["axes"])])
    x = call.name(0, dtypes.float32)
    mean = call.write("ReduceMean", call.write("Mul", x, x), axes, keepdims=1)
    root = call.write("Sqrt", call.write("Add", mean, call.constant(call.params["eps"], dtypes.float32)))
    out = call.write("Div", x, root)
    out = call.write("Mul", out, call.name(1, dtypes.float32)) if call.has(1) else out
    return out if call.outputs[0].dtype is dtypes.float32 else call.cast(out, call.outputs[0].dtype)


@exported("attention")
def attention(call: ExportedOp) -> Name:
    """Write scores, their softmax, and the product with the values. Fully masked rows are 0."""
    dtype, scale = call.dtype(), call.params["scale"]
    steps, keys, width = call.shape(0)[-2], call.shape(1)[-2], call.shape(0)[-1]
    scale = 1 / math.sqrt(width) if scale is None else scale
    order = list(range(len(call.shape(1))))
    scores = call.write(
        "MatMul", call.name(0), call.write("Transpose", call.name(1), perm=[*order[:-2], order[-1], order[-2]])
    )
    scores = call.write("Mul", scores, call.constant(scale, dtype))
    hidden: Name | None = None
    lowest = call.constant(float(np.finfo(np.float16).min) if dtype.itemsize == 2 else -1e30, dtype)
    if call.has(3) and call.dtype(3) is dtypes.bool_:
        hidden = call.write("Not", call.name(3))
    elif call.has(3):
        scores = call.write("Add", scores, call.name(3, dtype))
    if call.params["causal"]:
        later = np.triu(np.ones((steps, keys), bool), 1 + keys - steps)
        mask = call.constant(later, dtypes.bool_)
        hidden = mask if hidden is None else call.write("Or", hidden, mask)
    scores = scores if hidden is None else call.write("Where", hidden, lowest, scores)
    shares = call.write("Softmax", scores, axis=-1)
    shares = shares if hidden is None else call.write("Where", hidden, call.constant(0, dtype), shares)
    return call.write("MatMul", shares, call.name(2))
