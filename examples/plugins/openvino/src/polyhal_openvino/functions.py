"""The ops that programs may contain, by name, as nodes of OpenVINO.

Polyhal expresses other ops by the ops below, through the decompositions that it declares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import openvino.opset15 as ov

from polyhal.hal.protocol import GraphNode

TESTS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
"""Ops of numbers whose result is bool."""
OF_BOOLS = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not", "any", "all"})
OF_FLOATS = frozenset(
    {"divide", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "floor", "reciprocal", "gelu", "silu"}
)
INDEX = {"embedding": 1, "take_along_axis": 1}
"""The operand of an op that holds positions, in any integer dtype."""
POSITIONS = frozenset({"argmax", "argmin"})
"""Ops whose results are positions, in int64."""


def _number(value: float) -> Any:
    return ov.constant(np.float32(value))


def _integers(values: Any) -> Any:
    return ov.constant(np.array(values, np.int64))


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a maximum or minimum that is NaN if an operand is: OpenVINO's is the second operand if the first is NaN."""

    def extreme(x: Any, y: Any) -> Any:
        if not x.get_element_type().is_real() or _is_constant(x):
            return function(x, y)
        return function(y, x) if _is_constant(y) else ov.select(ov.is_nan(x), x, function(x, y))

    return extreme


def _is_constant(x: Any) -> bool:
    return bool(x.get_node().get_type_name() == "Constant")


def _exp(x: Any) -> Any:
    return ov.select(ov.is_nan(x), x, ov.exp(x))  # OpenVINO's exponential of NaN is infinity


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "equal": ov.equal,
    "not_equal": ov.not_equal,
    "less": ov.less,
    "less_equal": ov.less_equal,
    "greater": ov.greater,
    "greater_equal": ov.greater_equal,
    "logical_and": ov.logical_and,
    "logical_or": ov.logical_or,
    "logical_xor": ov.logical_xor,
    "logical_not": ov.logical_not,
    "maximum": _extreme(ov.maximum),
    "minimum": _extreme(ov.minimum),
    "where": ov.select,
    "cast": lambda x, dtype: x,
    "add": ov.add,
    "subtract": ov.subtract,
    "multiply": ov.multiply,
    "divide": ov.divide,
    "negative": lambda x: ov.multiply(x, ov.constant(-1, x.get_element_type())),
    "abs": ov.abs,
    "square": lambda x: ov.multiply(x, x),
    "reciprocal": lambda x: ov.divide(_number(1), x),
    "floor": ov.floor,
    "exp": _exp,
    "log": ov.log,
    "sqrt": ov.sqrt,
    "rsqrt": lambda x: ov.divide(_number(1), ov.sqrt(x)),
    "sin": ov.sin,
    "cos": ov.cos,
    "tanh": ov.tanh,
    "sigmoid": ov.sigmoid,
    "relu": lambda x: ov.maximum(ov.constant(0, x.get_element_type()), x),  # in this order, NaN passes
    "gelu": lambda x, approximate: ov.gelu(x, "tanh" if approximate == "tanh" else "erf"),
    "silu": ov.swish,
}
"""Their operands have one dtype, that of the result except for `TESTS` and `cast`."""


def _shaped(node: GraphNode) -> tuple[int, ...]:
    return node.results[0].spec.shape


def _slice(node: GraphNode, x: Any, starts: Any, lengths: Any, steps: Any) -> Any:
    stops = [start + length * step for start, length, step in zip(starts, lengths, steps, strict=True)]
    # A negative stop would count from the end.
    stops = [stop if stop >= 0 else np.iinfo(np.int32).min for stop in stops]
    return ov.slice(x, _integers(starts), _integers(stops), _integers(steps))


def _pad(node: GraphNode, x: Any, widths: Any, value: float) -> Any:
    begin, end = (_integers([w[side] for w in widths]) for side in (0, 1))
    return ov.pad(x, begin, end, "constant", ov.constant(value, x.get_element_type()))


def _broadcast(node: GraphNode, x: Any) -> Any:
    shape = _shaped(node)
    # OpenVINO ends the process at a broadcast to no axes.
    return ov.broadcast(x, _integers(shape)) if tuple(x.get_shape()) != shape else x


MOVEMENT: dict[str, Callable[..., Any]] = {
    "contiguous": lambda node, x: x,
    "copy": lambda node, x: x,
    "copies": lambda node, *xs: xs,
    "reshape": lambda node, x, shape: ov.reshape(x, _integers(_shaped(node)), False),
    "permute": lambda node, x, axes: ov.transpose(x, _integers(axes)),
    "broadcast_to": lambda node, x, shape: _broadcast(node, x),
    "slice": _slice,
    "pad": _pad,
    "concat": lambda node, *xs, axis: ov.concat(list(xs), axis),
    "full": lambda node, shape, value, dtype: _broadcast(node, value),
    "broadcast_scalar": lambda node, value, shape, dtype: _broadcast(node, value),
}
"""Called with the node, its operands in the dtype of the result, and its parameters by name."""


def _embedding(node: GraphNode, weight: Any, index: Any) -> Any:
    rows = ov.constant(weight.get_shape()[0], index.get_element_type())
    # OpenVINO counts negative rows from the end; rows beyond it are zeros.
    inside = ov.select(ov.less(index, ov.constant(0, index.get_element_type())), rows, index)
    return ov.gather(weight, inside, _integers(0))


def _take_along_axis(node: GraphNode, x: Any, index: Any, axis: int) -> Any:
    last = x.get_shape()[axis] - 1
    return ov.gather_elements(x, ov.convert(ov.clamp(ov.convert(index, "i32"), 0, last), "i32"), axis)


def _linear(node: GraphNode, x: Any, weight: Any, bias: Any = None, **settings: Any) -> Any:
    out = ov.matmul(x, weight, False, True)
    return out if bias is None else ov.add(out, bias)


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
    window = (list(stride), list(padding), list(padding), list(dilation))
    if groups == 1:
        out = ov.convolution(x, weight, *window)
    else:
        channels, *rest = weight.get_shape()
        out = ov.group_convolution(
            x, ov.reshape(weight, _integers([groups, channels // groups, *rest]), False), *window
        )
    return out if bias is None else ov.add(out, ov.reshape(bias, _integers([1, -1, 1, 1]), False))


def _max_pool2d(node: GraphNode, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    stride = stride or kernel
    ends = []
    for size, count, k, s, p, d in zip(
        x.get_shape()[2:], _shaped(node)[2:], kernel, stride, padding, dilation, strict=True
    ):
        ends.append(max(0, (count - 1) * s + (k - 1) * d + 1 - size - p))
    return ov.max_pool(x, list(stride), list(dilation), list(padding), ends, list(kernel)).output(0)


def _layer_norm(
    node: GraphNode, x: Any, weight: Any, bias: Any, axes: int, eps: float, out_dtype: Any
) -> Sequence[Any]:
    over = _integers(range(-axes, 0))
    mean = ov.reduce_mean(x, over, True)
    variance = ov.reduce_mean(ov.squared_difference(x, mean), over, True)
    out = ov.mvn(x, over, True, eps, "inside_sqrt")
    out = out if weight is None else ov.multiply(out, weight)
    deviation = ov.divide(_number(1), ov.sqrt(ov.add(variance, _number(eps))))
    return out if bias is None else ov.add(out, bias), mean, deviation


def _attention(
    node: GraphNode, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, **settings: Any
) -> Sequence[Any]:
    out = ov.scaled_dot_product_attention(q, k, v, scale=_number(scale), causal=causal)
    scores = ov.multiply(ov.matmul(q, k, False, True), _number(scale))
    if causal:
        rows, columns = q.get_shape()[-2], k.get_shape()[-2]
        scores = ov.select(ov.constant(np.tri(rows, columns, dtype=bool)), scores, _number(-np.inf))
    top = ov.reduce_max(scores, _integers([-1]), True)
    total = ov.reduce_sum(ov.exp(ov.subtract(scores, top)), _integers([-1]), True)
    return out, ov.concat([top, ov.log(total)], -1)


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(node: GraphNode, x: Any, axis: Any, keepdims: bool) -> Any:
        axes = range(len(x.get_shape())) if axis is None else axis
        return function(x, _integers([axes] if isinstance(axes, int) else list(axes)), keepdims)

    return reduce


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "embedding": _embedding,
    "take_along_axis": _take_along_axis,
    "matmul": lambda node, x, y, **settings: ov.matmul(x, y, False, False),
    "linear": _linear,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "layer_norm": _layer_norm,
    "attention": _attention,
    "sum": _reduction(ov.reduce_sum),
    "mean": _reduction(ov.reduce_mean),
    "max": _reduction(ov.reduce_max),
    "min": _reduction(ov.reduce_min),
    "any": _reduction(ov.reduce_logical_or),
    "all": _reduction(ov.reduce_logical_and),
    "cumsum": lambda node, x, axis: ov.cum_sum(x, _integers(axis)),
}
"""Called with the node, its operands, and its parameters by name. Results that nobody uses cost nothing."""
