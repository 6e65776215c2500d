"""Activation functions, softmax and dropout."""

from __future__ import annotations

from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.random import Generator, default_generator
from polyhal.tensor import Tensor

_relu, _leaky_relu, _elu, _gelu, _silu, _sigmoid, _tanh, _softplus, _softmax, _log_softmax, _dropout, _where, _less = (
    FUNCTIONS[n]
    for n in (
        "relu", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh", "softplus", "softmax", "log_softmax",
        "dropout", "where", "less",
    )
)  # fmt: skip


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)`."""
    out: Tensor = _relu(x)
    return out


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`x` if positive, else `negative_slope * x`."""
    out: Tensor = _leaky_relu(x, negative_slope)
    return out


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`x` if positive, else `alpha * (exp(x) - 1)`."""
    out: Tensor = _elu(x, alpha)
    return out


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit, exact or by tanh (`approximate="tanh"`). Source: arXiv:1606.08415."""
    out: Tensor = _gelu(x, approximate)
    return out


def silu(x: Tensor) -> Tensor:
    """`x * sigmoid(x)`, also called swish."""
    out: Tensor = _silu(x)
    return out


def sigmoid(x: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`."""
    out: Tensor = _sigmoid(x)
    return out


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    out: Tensor = _tanh(x)
    return out


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """`log(1 + exp(beta * x)) / beta`, which is `x` where `beta * x` exceeds `threshold`."""
    scaled = x if beta == 1 else x * beta
    smooth = _softplus(scaled)
    out: Tensor = _where(_less(threshold, scaled), x, smooth if beta == 1 else smooth * (1 / beta))
    return out


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Exponentials divided by their sum along `dim`."""
    out: Tensor = _softmax(x, dim)
    return out


def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Logarithm of softmax along `dim`, accurate where probabilities are tiny."""
    out: Tensor = _log_softmax(x, dim)
    return out


def dropout(x: Tensor, p: float = 0.5, training: bool = True, generator: Generator | None = None) -> Tensor:
    """In training, zeroes elements with probability `p` and scales the others by 1/(1-p). Source: JMLR 15 (2014)
    1929-1958."""
    if not 0 <= p <= 1:
        raise ValueError(message("dropout", f"p is {p}", expected="a probability from 0 to 1"))
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    seed, offset = (generator or default_generator).take(x.size)
    out: Tensor = _dropout(x, seed, offset, p)
    return out
