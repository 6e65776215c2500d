"""Standard noise with the dtype and device of a parameter, from which samples are made."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.random import Generator, rand, randn
from polyhal.tensor import Tensor


def standard_normal(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Draw from the standard normal distribution."""
    return randn(shape, dtype=like.dtype, generator=generator, device=like.device)


def unit_uniform(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Draw uniform numbers in [0, 1)."""
    return rand(shape, dtype=like.dtype, generator=generator, device=like.device)


def open_uniform(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Draw uniform numbers in (0, 1), whose ends are half a step away from the numbers that `rand` draws."""
    epsilon = float(dtypes.finfo(like.dtype).eps)
    return ops.clip(unit_uniform(shape, like, generator), epsilon / 4, 1 - epsilon / 2)


def standard_exponential(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Draw from the exponential distribution with rate 1, by inversion."""
    return -ops.log(open_uniform(shape, like, generator))


def standard_gumbel(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Draw from the standard Gumbel distribution, by inversion."""
    return -ops.log(standard_exponential(shape, like, generator))
