"""Activation functions and softmax.

`inplace` is accepted, as in PyTorch, and changes nothing but who owns the result: it is a new tensor.
"""

from __future__ import annotations

from polyhal import functions as ops
from polyhal import random
from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.top_level import top_level
from polyhal.random import Generator
from polyhal.tensor import Tensor

_parametric_relu = FUNCTIONS["parametric_relu"]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """`max(x, 0)`."""
    return ops.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`min(max(x, 0), 6)`."""
    return ops.relu6(input)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` limited to [`min_val`, `max_val`]; its gradient is 0 at both bounds."""
    return ops.hardtanh(input, min_val, max_val)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`x` if positive, else `negative_slope * x`. Takes a tensor of any shape."""
    return ops.leaky_relu(input, negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`x` if positive, else `weight * x`, with one weight, or one for each channel (axis 1). Raises ValueError."""
    return ops.prelu(input, weight)


@top_level
def rrelu(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`leaky_relu` with slopes drawn from [lower, upper) in training, and their mean otherwise. Source: arXiv:1505.00853.

    Takes a tensor of any shape.
    """
    if not training:
        return ops.leaky_relu(input, (lower + upper) / 2)
    slopes = random.uniform(lower, upper, input.shape, generator=generator, device=input.device).to(input.dtype)
    out: Tensor = _parametric_relu(input, slopes)
    return out


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` if positive, else `alpha * (exp(x) - 1)`."""
    return ops.elu(input, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit, exact or by tanh (`approximate="tanh"`). Source: arXiv:1606.08415.

    Takes a tensor of any shape.
    """
    return ops.gelu(input, approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * sigmoid(x)`, also called swish."""
    return ops.silu(input)


def sigmoid(input: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`. Takes a tensor of any shape."""
    return ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent. Takes a tensor of any shape."""
    return ops.tanh(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """`log(1 + exp(beta * x)) / beta`, and `x` for `beta * x` above `threshold`. Takes a tensor of any shape."""
    scaled = input if beta == 1 else input * beta
    smooth = ops.softplus(scaled)
    return ops.where(ops.less(threshold, scaled), input, smooth if beta == 1 else smooth * (1 / beta))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half along `dim` times the sigmoid of the second. Raises ValueError for an odd length.

    Source: Dauphin et al., arXiv:1612.08083.
    """
    return ops.glu(input, dim)


def _dimension(op: str, x: Tensor, dim: int | None) -> int:
    """Return the axis, which may be left out for up to two axes: PyTorch's choice for more is a trap."""
    if dim is None and x.ndim > 2:
        raise ValueError(message(op, f"no axis for shape {x.shape}", expected="dim=-1, for instance"))
    return -1 if dim is None else dim


def _cast(x: Tensor, dtype: object) -> Tensor:
    return x if dtype is None else x.to(dtype)


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    """Exponentials divided by their sum along `dim`, which may be left out for vectors and rows; cast to `dtype` first."""
    return ops.softmax(_cast(input, dtype), _dimension("softmax", input, dim))


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    """`softmax` of `-input`. Takes a tensor of any shape."""
    return ops.softmax(-_cast(input, dtype), _dimension("softmin", input, dim))


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    """Logarithm of `softmax`, accurate also for tiny probabilities. Takes a tensor of any shape."""
    return ops.log_softmax(_cast(input, dtype), _dimension("log_softmax", input, dim))


def gumbel_softmax(
    logits: Tensor,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    generator: Generator | None = None,
) -> Tensor:
    """Sample from the Gumbel-softmax distribution of temperature `tau`. Source: Jang et al., arXiv:1611.01144.

    With `hard` the sample is one-hot and has the gradient of the soft one. `eps` is PyTorch's and unused.
    """
    uniform = random.uniform(0.0, 1.0, logits.shape, generator=generator, device=logits.device)
    exponential = -ops.log(ops.maximum(uniform, 2.0**-25))
    noise = -ops.log(exponential).to(logits.dtype)
    soft = ops.softmax((logits + noise) * (1 / tau), dim)
    if not hard:
        return soft
    classes = ops.arange(0, logits.shape[dim], 1, device=logits.device)
    best = ops.unsqueeze(ops.argmax(soft, dim), -1)
    one = ops.moveaxis(ops.equal(best, classes), -1, dim).cast(dtype=soft.dtype)
    out: Tensor = one - soft.detach() + soft
    return out
