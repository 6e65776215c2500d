"""Further activation functions in PyTorch's spelling: smooth gates, shrinkage and thresholds.

`inplace` is accepted, as in PyTorch, and changes nothing but who owns the result: it is a new tensor.
"""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.nn.functional.activation import hardtanh
from polyhal.tensor import Tensor

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`. Source: Barron, arXiv:1704.07483."""
    return ops.where(ops.less(0, input), input, ops.expm1(ops.minimum(input, 0.0) * (1 / alpha)) * alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`scale * elu(x, alpha)` with the constants that keep mean 0 and variance 1. Source: arXiv:1706.02515."""
    out: Tensor = ops.elu(input, _SELU_ALPHA) * _SELU_SCALE
    return out


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * tanh(softplus(x))`. Source: Misra, arXiv:1908.08681."""
    out: Tensor = input * ops.tanh(ops.softplus(input))
    return out


def softsign(input: Tensor) -> Tensor:
    """`x / (1 + |x|)`."""
    out: Tensor = input / (ops.abs(input) + 1.0)
    return out


def logsigmoid(input: Tensor) -> Tensor:
    """`log(sigmoid(x))` without overflow."""
    return -ops.softplus(-input)


def tanhshrink(input: Tensor) -> Tensor:
    """`x - tanh(x)`."""
    out: Tensor = input - ops.tanh(input)
    return out


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """`min(max(x + 3, 0), 6) / 6`, a piecewise linear sigmoid."""
    out: Tensor = hardtanh(input + 3.0, 0.0, 6.0) * (1 / 6)
    return out


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * hardsigmoid(x)`. Source: Howard et al., arXiv:1905.02244."""
    middle = input * (input + 3.0) * (1 / 6)
    return ops.where(ops.less_equal(input, -3), 0.0 * input.detach(), ops.where(ops.less(input, 3), middle, input))


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`x`, but 0 from `-lambd` to `lambd`."""
    return ops.where(ops.less_equal(ops.abs(input), lambd), 0.0, input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`x` moved towards 0 by `lambd`, and 0 if that passes 0. Raises ValueError for a negative `lambd`."""
    if lambd < 0:
        raise ValueError(f"[softshrink] lambd is {lambd}; expected 0 or more")
    outside = ops.where(ops.less(lambd, input), input - lambd, input + lambd)
    return ops.where(ops.less_equal(ops.abs(input), lambd), 0.0, outside)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`x` where it is above `threshold`, else `value`."""
    return ops.where(ops.less_equal(input, threshold), value, input)
