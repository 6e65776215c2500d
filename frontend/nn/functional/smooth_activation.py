"""Further activation functions in PyTorch's spelling: smooth gates, shrinkage and thresholds.

`inplace` is accepted, as in PyTorch, and changes nothing but who owns the result: it is a new tensor.
"""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.tensor import Tensor


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`. Source: Barron, arXiv:1704.07483.

    Takes a tensor of any shape.
    """
    return ops.celu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`scale * elu(x, alpha)` with the constants that keep mean 0 and variance 1. Source: arXiv:1706.02515."""
    return ops.selu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * tanh(softplus(x))`. Source: Misra, arXiv:1908.08681."""
    return ops.mish(input)


def softsign(input: Tensor) -> Tensor:
    """`x / (1 + |x|)`. Takes a tensor of any shape."""
    return ops.softsign(input)


def logsigmoid(input: Tensor) -> Tensor:
    """`log(sigmoid(x))` without overflow."""
    return ops.logsigmoid(input)


def tanhshrink(input: Tensor) -> Tensor:
    """`x - tanh(x)`."""
    return ops.tanhshrink(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """`min(max(x + 3, 0), 6) / 6`, a piecewise linear sigmoid. Takes a tensor of any shape."""
    return ops.hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * hardsigmoid(x)`. Source: Howard et al., arXiv:1905.02244."""
    return ops.hardswish(input)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`x`, but 0 from `-lambd` to `lambd`. Takes a tensor of any shape."""
    return ops.hardshrink(input, lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`x` moved towards 0 by `lambd`, and 0 if that passes 0. Raises ValueError for a negative `lambd`.

    Takes a tensor of any shape.
    """
    if lambd < 0:
        raise ValueError(f"[softshrink] lambd is {lambd}; expected 0 or more")
    return ops.softshrink(input, lambd)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`x` where it is above `threshold`, else `value`. Takes a tensor of any shape."""
    return ops.threshold(input, threshold, value)
