"""Dropout of elements and of whole channels, and its variants for self-normalising networks.

`inplace` is accepted everywhere, as in PyTorch, and changes nothing but who owns the result: it is a new tensor.
"""

from __future__ import annotations

import math

from polyhal import functions as ops
from polyhal.creation import ones
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.returns import Returns, returns
from polyhal.hal.ops.top_level import top_level, top_level_as
from polyhal.random import Generator, default_generator
from polyhal.tensor import Tensor

_dropout = FUNCTIONS["dropout"]
_SELU_LIMIT = -1.7580993408473766
"""Value of dropped elements: the limit of selu for very negative numbers, -scale * alpha. Source: arXiv:1706.02515."""


def _drops(op: str, p: float, training: bool) -> bool:
    """Return whether anything is dropped. Raises ValueError unless `p` is a probability."""
    if not 0 <= p <= 1:
        raise ValueError(message(op, f"p is {p}", expected="a probability from 0 to 1"))
    return training and p > 0


@top_level_as(lambda f: lambda input, p, train: f(input, p, train))
@returns(Returns.EITHER)
def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """In training, zeroes elements with probability `p` and scales the others by 1/(1-p).

    Source: JMLR 15 (2014) 1929-1958.
    """
    if not _drops("dropout", p, training):
        return input
    if p == 1:
        return input * 0.0
    seed, offset = (generator or default_generator).take(input.size)
    out: Tensor = _dropout(input, seed, offset, p)
    return out


@top_level
@returns(Returns.EITHER)
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Set whole channels (N, C, ...) to 0 with probability `p`."""
    flat = input.reshape((*input.shape[:2], -1))
    return dropout1d(flat, p, train).reshape(input.shape)


def _drop_channels(
    op: str, x: Tensor, p: float, training: bool, axes: tuple[int, ...], generator: Generator | None
) -> Tensor:
    """Dropout with one decision per channel. `axes` are the possible numbers of axes; the smallest has no batch."""
    if x.ndim not in axes:
        expected = " or ".join(map(str, axes)) + " axes"
        raise ShapeError(message(op, f"got shape {x.shape}", expected=expected))
    if not _drops(op, p, training):
        return x
    channels = 1 if x.ndim == axes[0] and len(axes) > 1 else 2
    keep = ones((*x.shape[:channels], *(1,) * (x.ndim - channels)), x.dtype, x.device)
    return x * dropout(keep, p, True, generator=generator)


@returns(Returns.EITHER)
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Zeroes whole channels of (N, C, L) or (C, L) with probability `p` and scales the others by 1/(1-p)."""
    return _drop_channels("dropout1d", input, p, training, (2, 3), generator)


@returns(Returns.EITHER)
def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Zeroes whole channels of (N, C, H, W) with probability `p` and scales the others by 1/(1-p).

    Three axes count as (N, C, L), as in PyTorch. Source: Tompson et al., arXiv:1411.4280.
    """
    if input.ndim == 3:
        return _drop_channels("dropout2d", input, p, training, (3,), generator)
    return _drop_channels("dropout2d", input, p, training, (4,), generator)


@returns(Returns.EITHER)
def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W) with probability `p` and scales the others by 1/(1-p)."""
    return _drop_channels("dropout3d", input, p, training, (4, 5), generator)


def _alpha(x: Tensor, keep_shape: tuple[int, ...], p: float, generator: Generator | None) -> Tensor:
    """Replace elements by selu's limit with probability `p`, then restore mean 0 and variance 1."""
    if p == 1:
        return x * 0.0
    scale = 1 / math.sqrt((_SELU_LIMIT**2 * p + 1) * (1 - p))
    keep = ops.not_equal(dropout(ones(keep_shape, x.dtype, x.device), p, True, generator=generator), 0)
    return ops.where(keep, x, _SELU_LIMIT) * scale - scale * _SELU_LIMIT * p


@top_level_as(lambda f: lambda input, p, train: f(input, p, train))
@returns(Returns.EITHER)
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Dropout that keeps mean 0 and variance 1, for networks of `selu`. Source: Klambauer et al., arXiv:1706.02515.

    Takes a tensor of any shape.
    """
    return _alpha(input, input.shape, p, generator) if _drops("alpha_dropout", p, training) else input


@top_level_as(lambda f: lambda input, p, train: f(input, p, train))
@returns(Returns.EITHER)
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, ...)."""
    if not _drops("feature_alpha_dropout", p, training):
        return input
    return _alpha(input, (*input.shape[:2], *(1,) * (input.ndim - 2)), p, generator)
