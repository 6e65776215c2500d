"""The ops that programs of XLA may contain, by name, as functions of JAX's arrays.

Polyhal expresses other ops by the ops below, through the decompositions that it declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from polyhal.hal.protocol import GraphNode

TESTS = frozenset(
    {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf", "isfinite"}
    | {"logical_and", "logical_or", "logical_xor", "logical_not"}
)
"""Ops whose result is bool, computed in the dtype of their operands."""
OF_FLOATS = frozenset(
    {"divide", "exp", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "floor"}
    | {"tanh_grad", "sigmoid_grad", "gelu", "gelu_grad", "silu", "silu_grad", "reciprocal"}
)


def _tanh_gelu(x: Any) -> tuple[Any, Any]:
    """Return the sigmoid of the approximation of GELU, and the derivative of its argument."""
    scale, cubic = 2 * np.sqrt(2 / np.pi), 0.044715
    return jax.nn.sigmoid(scale * (x + cubic * x * x * x)), scale * (1 + 3 * cubic * x * x)


def _gelu(x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        return x * _tanh_gelu(x)[0]
    return x * ((lax.erf(x * np.sqrt(0.5)) + 1) * 0.5)


def _gelu_grad(g: Any, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        s, inner = _tanh_gelu(x)
        return g * (s + x * s * (1 - s) * inner)
    return g * ((lax.erf(x * np.sqrt(0.5)) + 1) * 0.5 + x * jnp.exp(-0.5 * x * x) * (1 / np.sqrt(2 * np.pi)))


def _silu_grad(g: Any, x: Any) -> Any:
    s = jax.nn.sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "equal": jnp.equal,
    "not_equal": jnp.not_equal,
    "less": jnp.less,
    "less_equal": jnp.less_equal,
    "greater": jnp.greater,
    "greater_equal": jnp.greater_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "logical_not": jnp.logical_not,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "bitwise_invert": jnp.bitwise_not,
    "bitwise_left_shift": jnp.left_shift,
    "bitwise_right_shift": jnp.right_shift,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "where": jnp.where,
    "add": jnp.add,
    "subtract": jnp.subtract,
    "multiply": jnp.multiply,
    "divide": jnp.divide,
    "negative": jnp.negative,
    "abs": jnp.abs,
    "square": jnp.square,
    "reciprocal": jnp.reciprocal,
    "cast": lambda x, dtype: x,
    "floor": jnp.floor,
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
    "isfinite": jnp.isfinite,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "sqrt": jnp.sqrt,
    "rsqrt": lambda x: 1 / jnp.sqrt(x),
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tanh": jnp.tanh,
    "erf": lax.erf,
    "sigmoid": jax.nn.sigmoid,
    "relu": lambda x: jnp.maximum(x, 0),
    "relu_grad": lambda g, y: jnp.where(y <= 0, jnp.zeros((), g.dtype), g),
    "tanh_grad": lambda g, y: g * (1 - y * y),
    "sigmoid_grad": lambda g, y: g * (y * (1 - y)),
    "gelu": _gelu,
    "gelu_grad": _gelu_grad,
    "silu": lambda x: x * jax.nn.sigmoid(x),
    "silu_grad": _silu_grad,
}
"""Their operands have one dtype, that of the result except for `TESTS` and `cast`."""


def _shaped(node: GraphNode) -> tuple[int, ...]:
    return node.results[0].spec.shape


def _kind(node: GraphNode) -> Any:
    return node.results[0].spec.dtype.numpy


def _slice(node: GraphNode, x: Any, starts: Any, lengths: Any, steps: Any) -> Any:
    index = []
    for start, length, step in zip(starts, lengths, steps, strict=True):
        stop = start + length * step
        index.append(slice(start, None if stop < 0 else stop, step) if length else slice(0, 0))
    return x[tuple(index)]


def _unslice(node: GraphNode, x: Any, shape: Any, starts: Any, steps: Any) -> Any:
    flipped = tuple(axis for axis, step in enumerate(steps) if step < 0)
    x = jnp.flip(x, flipped) if flipped else x
    padding = []
    for size, length, start, step in zip(shape, x.shape, starts, steps, strict=True):
        low = start + (length - 1) * step if step < 0 else start
        span = (length - 1) * abs(step) + 1
        padding.append((low, size - low - span, abs(step) - 1))
    return lax.pad(x, jnp.zeros((), x.dtype), padding)


def _embedding(node: GraphNode, weight: Any, index: Any) -> Any:
    return weight.at[_inside(index, len(weight))].get(mode="fill", fill_value=0)


def _scatter_rows(node: GraphNode, src: Any, index: Any, rows: int, **settings: Any) -> Any:
    width = src.shape[-1]
    table = jnp.zeros((rows, width), src.dtype)
    return table.at[_inside(index.reshape(-1), rows)].add(src.reshape(-1, width), mode="drop")


def _add_rows(node: GraphNode, x: Any, index: Any, src: Any, **settings: Any) -> Any:
    return x.at[_inside(index, len(x))].add(src, mode="drop")


def _inside(index: Any, rows: int) -> Any:
    """Return row numbers in which the negative ones, which JAX counts from the end, are out of range."""
    return jnp.where(index < 0, rows, index)


def _take_along_axis(node: GraphNode, x: Any, index: Any, axis: int) -> Any:
    return jnp.take_along_axis(x, index, axis, mode="clip")


def _matmul(node: GraphNode, x: Any, y: Any, out_dtype: Any = None, **settings: Any) -> Any:
    kind = _kind(node)
    return jnp.matmul(x.astype(kind), y.astype(kind))


def _linear(node: GraphNode, x: Any, weight: Any, bias: Any = None, **settings: Any) -> Any:
    out = jnp.matmul(x, weight.T)
    return out if bias is None else out + bias


def _linear_weight_grad(node: GraphNode, grad: Any, x: Any, out_dtype: Any = None, **settings: Any) -> Any:
    kind = _kind(node)
    grad, x = grad.astype(kind), x.astype(kind)
    return jnp.matmul(grad.T, x), grad.sum(0)


def _convolve(x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return lax.conv_general_dilated(
        x,
        weight,
        stride,
        [(p, p) for p in padding],
        rhs_dilation=dilation,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
        feature_group_count=groups,
    )


def _conv2d(
    node: GraphNode,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    **settings: Any,
) -> Any:
    out = _convolve(x, weight, stride, padding, dilation, groups)
    return out if bias is None else out + bias.reshape(1, -1, 1, 1)


def _conv2d_input_grad(
    node: GraphNode,
    grad: Any,
    weight: Any,
    shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    **settings: Any,
) -> Any:
    zeros = jax.ShapeDtypeStruct(shape, grad.dtype)
    return jax.linear_transpose(lambda x: _convolve(x, weight, stride, padding, dilation, groups), zeros)(grad)[0]


def _conv2d_weight_grad(
    node: GraphNode,
    grad: Any,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    **settings: Any,
) -> Any:
    zeros = jax.ShapeDtypeStruct(_shaped(node), grad.dtype)
    return jax.linear_transpose(lambda w: _convolve(x, w, stride, padding, dilation, groups), zeros)(grad)[0]


def _windows(node: GraphNode, x: Any, kernel: Any, stride: Any, dilation: Any) -> Any:
    axes = len(kernel)
    counts = _shaped(node)[x.ndim - axes : x.ndim]
    taps = []
    for position in np.ndindex(*kernel):
        places = zip(position, dilation, counts, stride, strict=True)
        taps.append(x[(..., *(slice(p * d, p * d + (c - 1) * s + 1, s) for p, d, c, s in places))])
    return jnp.stack(taps, -1)  # reshaped to the spec of the result


def _max_pool2d(node: GraphNode, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    least = jnp.asarray(-jnp.inf, x.dtype)
    rows, columns = _shaped(node)[2:]
    ends = []
    for size, count, k, s, p, d in zip(
        x.shape[2:], (rows, columns), kernel, stride or kernel, padding, dilation, strict=True
    ):
        ends.append((p, (count - 1) * s + (k - 1) * d + 1 - size - p))
    padded = lax.pad(x, least, [(0, 0, 0), (0, 0, 0), *((low, high, 0) for low, high in ends)])
    strides, window = (1, 1, *(stride or kernel)), (1, 1, *kernel)
    return lax.reduce_window(padded, least, lax.max, window, strides, "VALID", window_dilation=(1, 1, *dilation))


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(node: GraphNode, x: Any, axis: Any, keepdims: bool) -> Any:
        axes = axis if axis is None or isinstance(axis, int) else tuple(axis)
        return function(x, axis=axes, keepdims=keepdims)

    return reduce


def _total(x: Any, axis: Any, keepdims: bool) -> Any:
    wide = x.astype(jnp.int64) if x.dtype.kind == "b" else x
    return jnp.sum(wide, axis=axis, keepdims=keepdims)


def _softmax_grad(node: GraphNode, g: Any, y: Any, axis: int) -> Any:
    return y * (g - jnp.sum(g * y, axis=axis, keepdims=True))


def _weights(q: Any, k: Any, causal: bool, scale: float) -> tuple[Any, Any, Any]:
    """Return the weights of attention, and the maximum and the sum of exponentials of each row.

    XLA computes them once for a step's forward and backward pass, because the expressions are equal.
    """
    scores = jnp.matmul(q, jnp.swapaxes(k, -1, -2)) * scale
    if causal:
        rows, columns = scores.shape[-2:]
        scores = jnp.where(jnp.tril(jnp.ones((rows, columns), bool), columns - rows), scores, -jnp.inf)
    top = jnp.max(scores, -1, keepdims=True)
    top = jnp.where(top == -jnp.inf, 0, top)
    exponentials = jnp.exp(scores - top)
    total = jnp.sum(exponentials, -1, keepdims=True)
    total = jnp.where(total == 0, 1, total)
    return exponentials / total, top, total


def _attention(
    node: GraphNode, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, **settings: Any
) -> tuple[Any, Any]:
    weights, top, total = _weights(q, k, causal, scale)
    return jnp.matmul(weights, v), jnp.concatenate([top, jnp.log(total)], -1)


def _attention_grad(
    node: GraphNode,
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    y: Any,
    lse: Any,
    causal: bool,
    scale: float,
    **settings: Any,
) -> tuple[Any, Any, Any]:
    weights, _, _ = _weights(q, k, causal, scale)
    of_weights = jnp.matmul(grad, jnp.swapaxes(v, -1, -2))
    of_scores = weights * (of_weights - jnp.sum(of_weights * weights, -1, keepdims=True)) * scale
    return (
        jnp.matmul(of_scores, k),
        jnp.matmul(jnp.swapaxes(of_scores, -1, -2), q),
        jnp.matmul(jnp.swapaxes(weights, -1, -2), grad),
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contiguous": lambda node, x: x,
    "copy": lambda node, x: x,
    "copies": lambda node, *xs: xs,
    "reshape": lambda node, x, shape: x.reshape(_shaped(node)),
    "permute": lambda node, x, axes: jnp.transpose(x, axes),
    "broadcast_to": lambda node, x, shape: jnp.broadcast_to(x, _shaped(node)),
    "slice": _slice,
    "unslice": _unslice,
    "pad": lambda node, x, widths, value: lax.pad(x, jnp.asarray(value).astype(x.dtype), [(*w, 0) for w in widths]),
    "concat": lambda node, *xs, axis: jnp.concatenate([x.astype(_kind(node)) for x in xs], axis),
    "windows": _windows,
    "full": lambda node, shape, value, dtype: jnp.full(_shaped(node), value, _kind(node)),
    "broadcast_scalar": lambda node, value, shape, dtype: jnp.full(_shaped(node), value, _kind(node)),
    "arange": lambda node, start, stop, step, dtype: (
        jnp.asarray(start).astype(_kind(node)) + jnp.arange(_shaped(node)[0]).astype(_kind(node)) * step
    ),
    "number_word": lambda node, number, word: (
        ((jnp.asarray(number).astype(jnp.int64) >> (32 * word)) & 0xFFFFFFFF)
        .astype(jnp.uint32)
        .astype(jnp.int32)
        .reshape(1)
    ),
    "embedding": _embedding,
    "scatter_rows": _scatter_rows,
    "add_rows": _add_rows,
    "take_along_axis": _take_along_axis,
    "matmul": _matmul,
    "linear": _linear,
    "linear_weight_grad": _linear_weight_grad,
    "conv2d": _conv2d,
    "conv2d_input_grad": _conv2d_input_grad,
    "conv2d_weight_grad": _conv2d_weight_grad,
    "max_pool2d": _max_pool2d,
    "attention": _attention,
    "attention_grad": _attention_grad,
    "sum": _reduction(_total),
    "mean": _reduction(jnp.mean),
    "max": _reduction(jnp.max),
    "min": _reduction(jnp.min),
    "any": _reduction(jnp.any),
    "all": _reduction(jnp.all),
    "softmax": lambda node, x, axis: jax.nn.softmax(x, axis),
    "softmax_grad": _softmax_grad,
    "log_softmax": lambda node, x, axis: jax.nn.log_softmax(x, axis),
}
"""Called with the node, its operands, and its parameters by name."""
