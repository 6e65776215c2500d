"""Random tensors under PyTorch's names: in the likeness of another tensor, from weights, and from discrete distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.top_level import top_level
from polyhal.memory_format import MemoryFormat
from polyhal.random import Generator, default_generator, rand, randint, randn, unsigned_words
from polyhal.random_words import as_float32
from polyhal.tensor import Tensor

_arange = FUNCTIONS["arange"]
Target = Device | str | None


@top_level
def rand_like(
    x: Tensor,
    *,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Draw uniform numbers in [0, 1) with the shape of `x`, and its dtype and device by default."""
    kind, target = x.dtype if dtype is None else dtype, x.device if device is None else device
    return rand(x.shape, dtype=kind, device=target, requires_grad=requires_grad, generator=generator)


@top_level
def randn_like(
    x: Tensor,
    *,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Draw from the standard normal distribution with the shape of `x`, and its dtype and device by default."""
    kind, target = x.dtype if dtype is None else dtype, x.device if device is None else device
    return randn(x.shape, dtype=kind, device=target, requires_grad=requires_grad, generator=generator)


@top_level
def randint_like(
    x: Tensor,
    low: int = 0,
    high: int | None = None,
    *,
    dtype: object = None,
    device: Target = None,
    generator: Generator | None = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Draw integers with the shape, dtype and device of `x`: `randint_like(x, high)` or `randint_like(x, low, high)`."""
    low, high = (0, low) if high is None else (low, high)
    kind, target = x.dtype if dtype is None else dtype, x.device if device is None else device
    return randint(low, high, x.shape, dtype=kind, device=target, generator=generator)


# --- weighted choices -----------------------------------------------------------------------------------------------


@top_level
def multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Draw positions along the last axis of weights `x`, (n,) or (rows, n): int64 of shape (..., num_samples).

    Weights need not add up to 1; negative ones are not detected, for that would wait for the device. Without replacement each
    position is drawn once at most, positions of weight 0 after all others. Raises ValueError for more samples than positions.
    """
    if x.ndim not in (1, 2) or not x.dtype.is_floating_point:
        problem = f"weights are {x.dtype.name} of shape {x.shape}"
        raise ValueError(message("multinomial", problem, expected="floats with one or two axes"))
    n = x.shape[-1]
    if num_samples < 1 or n == 0 or (num_samples > n and not replacement):
        problem = f"{num_samples} samples of {n} positions"
        raise ValueError(message("multinomial", problem, expected="at least 1, without replacement at most n"))
    weights = x.detach().to(dtypes.float32) if x.dtype.itemsize < 4 else x.detach()
    if replacement and num_samples > 1:
        return _by_inversion(weights, num_samples, generator)
    keys = weights / _waiting_times(weights, generator)
    if num_samples == 1:
        return ops.argmax(keys, -1, True)
    chosen: Tensor = ops.topk(keys, num_samples, -1).indices
    return chosen


def _waiting_times(weights: Tensor, generator: Generator | None) -> Tensor:
    """Draw exponentially distributed times, above 0: element i of times / weights is the least with probability weights[i].

    All 32 bits of a word matter near 0, the range of the first of many times.
    """
    drawn = as_float32(unsigned_words(weights.shape, generator=generator, device=weights.device))
    return -ops.log1p(-(drawn + 0.5) * 2.0**-32)


def _by_inversion(weights: Tensor, count: int, generator: Generator | None) -> Tensor:
    """Return positions at which cumulative sums exceed uniform numbers, drawn with replacement.

    Rounding of the sums may lead to a neighbour of weight 0: the next positive weight before it is taken.
    """
    n = weights.shape[-1]
    sums = ops.cumsum(weights, -1)
    total = sums[..., -1:]
    drawn = rand((*weights.shape[:-1], count), generator=generator, device=weights.device) * total
    places = ops.searchsorted(sums, ops.minimum(drawn, total * (1 - 2.0**-23)), right=True)
    numbers = ops.broadcast_to(_arange(0, n, 1, dtypes.int64, device=weights.device), weights.shape)
    positive: Any = ops.cummax(ops.where(weights > 0, numbers, 0), -1)[0]
    return ops.take_along_axis(positive, ops.clip(places, 0, n - 1), -1)


# --- discrete distributions -----------------------------------------------------------------------------------------


def _on_host(generator: Generator | None) -> np.random.Generator:
    """NumPy's generator, under a key drawn from ours."""
    words = (generator or default_generator).words(4).astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=words[:2] << np.uint64(32) | words[2:]))


@top_level
def poisson(rates: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw from the Poisson distributions of the given rates, in their dtype.

    Drawn on the host, because the number of steps varies by element: this waits for the device and cannot be captured.
    Raises TypeError for rates that are not floating point.
    """
    if not rates.dtype.is_floating_point:
        raise TypeError(message("poisson", f"rates are {rates.dtype.name}", expected="floats"))
    mean = rates.numpy().astype(np.float64)
    return Tensor(_on_host(generator).poisson(mean), dtype=rates.dtype, device=rates.device)


@top_level
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw the number of successes in `count` trials of probability `prob`, broadcast, in the dtype of `prob`.

    Drawn on the host: this waits for the device and cannot be captured. Raises ValueError for numbers that are none.
    Raises TypeError for probabilities that are not floating point.
    """
    if not prob.dtype.is_floating_point:
        raise TypeError(message("binomial", f"probabilities are {prob.dtype.name}", expected="floats"))
    trials, chances = count.numpy().astype(np.int64), prob.numpy().astype(np.float64)
    return Tensor(_on_host(generator).binomial(trials, chances), dtype=prob.dtype, device=prob.device)
