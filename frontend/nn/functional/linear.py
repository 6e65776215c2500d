"""Affine and bilinear maps, and one-hot encoding."""

from __future__ import annotations

import math
from collections.abc import Callable

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.top_level import top_level
from polyhal.tensor import Tensor

_fused_linear = FUNCTIONS["fused_linear"]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "gelu": ops.gelu,
    "gelu_tanh": lambda x: ops.gelu(x, "tanh"),
    "silu": ops.silu,
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
}


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    """`input @ weight.T + bias`: input (..., in), weight (out, in), bias (out,); then `activation`, fused if possible.

    Activations are relu, gelu, gelu_tanh, silu, sigmoid and tanh. Raises ValueError for others.
    """
    if activation is None:
        return ops.linear(input, weight, bias)
    function = _ACTIVATIONS.get(activation)
    if function is None:
        raise ValueError(message("linear", f"activation {activation!r}", expected=f"one of {', '.join(_ACTIVATIONS)}"))
    if _is_fused(activation, input, weight, bias):
        result: Tensor = _fused_linear(input, weight, bias, activation=activation)
        return result
    return function(ops.linear(input, weight, bias))


def _is_fused(activation: str, *inputs: Tensor | None) -> bool:
    """Return whether to use one op. Gradients of most activations need the product itself; a captured step is fused later."""
    if dispatch.thread.executor.fuses_later:
        return False
    taped = dispatch.thread.grad_enabled and any(x is not None and x.requires_grad for x in inputs)
    return activation == "relu" or not taped


@top_level
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`sum_ij input1[i] * weight[k, i, j] * input2[j] + bias[k]`: (..., in1) and (..., in2) to (..., out).

    `weight` is (out, in1, in2) and `bias` (out,). In half precision products are float32, and the sum is rounded once. Raises
    ShapeError.
    """
    out, in1, in2 = weight.shape
    if input1.shape[:-1] != input2.shape[:-1] or input1.shape[-1] != in1 or input2.shape[-1] != in2:
        raise ShapeError(
            message(
                "bilinear",
                f"inputs {input1.shape} and {input2.shape}, weight {weight.shape}",
                expected="(..., in1), (..., in2) and (out, in1, in2)",
            )
        )
    lead = input1.shape[:-1]
    rows = math.prod(lead)
    left, right = ops.reshape(input1, (rows, in1)), ops.reshape(weight.permute(1, 0, 2), (in1, out * in2))
    dtype = dtypes.promote(left.dtype, right.dtype)
    wide = dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else None
    first = ops.matmul(left, right, out_dtype=wide)
    joined = ops.reshape(first, (rows, out, in2)) * ops.reshape(input2, (rows, 1, in2))
    result = ops.reshape(ops.sum(joined, -1, dtype=joined.dtype), (*lead, out))
    result = result if bias is None else result + bias
    return result.to(dtypes.promote(dtype, input2.dtype)) if wide else result


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Encode integers (...) as rows (..., num_classes) with a single 1, in the dtype of `input`.

    `num_classes` defaults to one more than the largest integer, which waits for the device.

    >>> polyhal.nn.functional.one_hot(polyhal.tensor([0, 2]), 3).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    if num_classes < 0:
        num_classes = int(ops.max(input).item()) + 1 if input.size else 0
    classes = ops.arange(0, num_classes, 1, dtypes.int32, device=input.device)
    return ops.equal(ops.unsqueeze(input, -1), classes).to(input.dtype)
