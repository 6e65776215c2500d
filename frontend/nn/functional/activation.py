"""Activation functions, softmax and dropout."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.random import Generator, default_generator
from polyhal.tensor import Tensor

_dropout = FUNCTIONS["dropout"]


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)`."""
    return ops.relu(x)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`x` if positive, else `negative_slope * x`."""
    return ops.leaky_relu(x, negative_slope)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`x` if positive, else `alpha * (exp(x) - 1)`."""
    return ops.elu(x, alpha)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit, exact or by tanh (`approximate="tanh"`). Source: arXiv:1606.08415."""
    return ops.gelu(x, approximate)


def silu(x: Tensor) -> Tensor:
    """`x * sigmoid(x)`, also called swish."""
    return ops.silu(x)


def sigmoid(x: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`."""
    return ops.sigmoid(x)


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return ops.tanh(x)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """`log(1 + exp(beta * x)) / beta`, and `x` for `beta * x` above `threshold`."""
    scaled = x if beta == 1 else x * beta
    smooth = ops.softplus(scaled)
    return ops.where(ops.less(threshold, scaled), x, smooth if beta == 1 else smooth * (1 / beta))


def softmax(x: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    """Exponentials divided by their sum along `dim`, by default the last axis; `dtype` casts `x` first."""
    return ops.softmax(x, -1 if dim is None else dim, dtype)


def softmin(x: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    """Softmax of `-x`."""
    return ops.softmax(-x, -1 if dim is None else dim, dtype)


def log_softmax(x: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    """Logarithm of softmax along `dim`, accurate also for tiny probabilities; `dtype` casts `x` first."""
    return ops.log_softmax(x, -1 if dim is None else dim, dtype)


def dropout(x: Tensor, p: float = 0.5, training: bool = True, generator: Generator | None = None) -> Tensor:
    """In training, zeroes elements with probability `p` and scales the others by 1/(1-p).

    Source: JMLR 15 (2014) 1929-1958.
    """
    if not 0 <= p <= 1:
        raise ValueError(message("dropout", f"p is {p}", expected="a probability from 0 to 1"))
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    seed, offset = (generator or default_generator).take(x.size)
    out: Tensor = _dropout(x, seed, offset, p)
    return out
