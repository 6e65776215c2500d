"""Initializers: write initial values to parameters in place, with PyTorch's distributions."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from polyhal import functions as ops
from polyhal import random
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.random import Generator
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

Fan = Literal["fan_in", "fan_out"]


def fans(tensor: Tensor) -> tuple[int, int]:
    """Fan-in and fan-out of weights (out, in, ...): how many inputs feed one output, and the reverse.

    Raises ShapeError.
    """
    if tensor.ndim < 2:
        raise ShapeError(message("init", f"shape {tensor.shape} has no fan-in and fan-out", expected="at least 2 axes"))
    receptive = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive, tensor.shape[0] * receptive


def gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor that preserves variance through a nonlinearity, from PyTorch's table. Raises ValueError."""
    fixed = {
        "linear": 1.0,
        "identity": 1.0,
        "conv2d": 1.0,
        "sigmoid": 1.0,
        "tanh": 5.0 / 3,
        "relu": math.sqrt(2.0),
        "selu": 0.75,
    }
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in fixed:
        known = ", ".join(sorted([*fixed, "leaky_relu"]))
        raise ValueError(message("init", f"no gain is known for {nonlinearity!r}", expected=f"one of {known}"))
    return fixed[nonlinearity]


calculate_gain = gain


def _write(tensor: Tensor, values: Tensor) -> Tensor:
    with no_grad():
        return tensor.copy_(values)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Set every element to `val`."""
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Set every element to 0."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Set every element to 1."""
    return constant_(tensor, 1)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw uniform values in [a, b). Takes a tensor of any shape."""
    return _write(tensor, random.uniform(a, b, tensor.shape, generator=generator, device=tensor.device))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw normal values with the given mean and standard deviation. Takes a tensor of any shape."""
    return _write(tensor, random.normal(mean, std, tensor.shape, generator=generator, device=tensor.device))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw uniform values with variance 2 gain**2 / (fan_in + fan_out). Source: Glorot and Bengio, AISTATS 2010.

    Takes a weight (out, in, ...).
    """
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw normal values with variance 2 gain**2 / (fan_in + fan_out). Source: Glorot and Bengio, AISTATS 2010.

    Takes a weight (out, in, ...).
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: Fan, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(message("init", f"mode {mode!r}", expected="fan_in or fan_out"))
    fan = fans(tensor)[0 if mode == "fan_in" else 1]
    return gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: Fan = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Draw uniform values with variance gain**2 / fan. `a` is leaky ReLU's slope. Source: He et al., ICCV 2015.

    Takes a weight (out, in, ...).
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: Fan = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Draw normal values with variance gain**2 / fan. `a` is leaky ReLU's slope. Source: He et al., ICCV 2015.

    Takes a weight (out, in, ...).
    """
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Draw normal values in [a, b] (absolute bounds, not multiples of `std`), by inverting the distribution function."""
    low, high = (math.erf((edge - mean) / (std * math.sqrt(2.0))) for edge in (a, b))
    drawn = random.uniform(low, high, tensor.shape, generator=generator, device=tensor.device)
    # float32 can round a draw to exactly -1 or 1, where the inverse is infinite.
    edge = 1.0 - 2.0**-24
    values = _erfinv(ops.clip(drawn, -edge, edge)) * (std * math.sqrt(2.0)) + mean
    return _write(tensor, ops.clip(values, a, b))


_CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


def _erfinv(x: Tensor) -> Tensor:
    """Inverse error function in single precision.

    Source: Giles, "Approximating the erfinv function", GPU Computing Gems 2011.
    """
    w = -ops.log((1.0 - x) * (x + 1.0))
    centre, tail = w - 2.5, ops.sqrt(w) - 3.0
    p, q = centre * 0.0 + _CENTRE[0], tail * 0.0 + _TAIL[0]
    for c, d in zip(_CENTRE[1:], _TAIL[1:], strict=True):
        p, q = p * centre + c, q * tail + d
    return ops.where(ops.less(w, 5.0), p, q) * x


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw a (semi-)orthogonal matrix over all axes but the first, times `gain`. Source: Saxe et al., arXiv:1312.6120.

    Raises ShapeError for fewer than two axes.
    """
    if tensor.ndim < 2:
        raise ShapeError(message("init", f"shape {tensor.shape} is no matrix", expected="at least 2 axes"))
    if not tensor.size:
        return tensor
    rows, columns = tensor.shape[0], tensor.size // tensor.shape[0]
    tall = (max(rows, columns), min(rows, columns))
    normal = random.randn(tall, generator=generator, device=tensor.device).numpy()
    q, r = np.linalg.qr(normal.astype(np.float64))
    q *= np.where(np.diag(r) < 0, -1.0, 1.0)  # makes the factorisation unique, and thus the distribution uniform
    values = (q if rows >= columns else q.T) * gain
    return _write(tensor, Tensor(values.reshape(tensor.shape), dtype=dtypes.float32, device=tensor.device))


def eye_(tensor: Tensor) -> Tensor:
    """Write the identity to a matrix. Raises ShapeError."""
    if tensor.ndim != 2:
        raise ShapeError(message("eye_", f"shape {tensor.shape}", expected="a matrix"))
    return _write(tensor, Tensor(np.eye(tensor.shape[0], tensor.shape[1]), dtype=dtypes.float32, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Write convolution weights (out, in, k1, ...) that pass as many input channels on as possible, in each group.

    Raises ShapeError.
    """
    if tensor.ndim not in (3, 4, 5) or tensor.shape[0] % groups:
        problem = f"shape {tensor.shape} and {groups} groups"
        raise ShapeError(message("dirac_", problem, expected="3 to 5 axes, the first a multiple of the groups"))
    values = np.zeros(tensor.shape, np.float32)
    rows = tensor.shape[0] // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(rows, tensor.shape[1])):
            values[(group * rows + channel, channel, *centre)] = 1
    return _write(tensor, Tensor(values, device=tensor.device))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Draw a normal matrix, and set a share `sparsity` of each column to 0. Source: Martens, ICML 2010. Raises ShapeError."""
    if tensor.ndim != 2:
        raise ShapeError(message("sparse_", f"shape {tensor.shape}", expected="a matrix"))
    rows, columns = tensor.shape
    values = random.normal(0.0, std, tensor.shape, generator=generator, device=tensor.device).numpy()
    source = generator or random.default_generator
    for column in range(columns):
        values[source.permutation(rows)[: math.ceil(sparsity * rows)], column] = 0
    return _write(tensor, Tensor(values, device=tensor.device))


__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "fans", "gain", "kaiming_normal_", "kaiming_uniform_", "normal_",
    "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip
