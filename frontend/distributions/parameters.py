"""Parameters of distributions: conversion to tensors of one shape, and parameters that are derived from others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal import functions as ops
from polyhal import special
from polyhal.hal import dtypes
from polyhal.tensor import Tensor


class DerivedParameter:
    """A parameter that is derived from another one, such as `probs` from `logits`; an instance may override it.

    It is computed at each use and never cached, so that a value made without gradients or in a captured step is not reused
    elsewhere.
    """

    def __init__(self, compute: Callable[[Any], Tensor]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Tensor:
        return self._compute(instance)


def as_parameters(*values: Any) -> list[Tensor]:
    """Convert parameters to tensors: numbers take dtype and device of the first floating-point tensor, else float32."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    model = next((t for t in tensors if t.dtype.is_floating_point), tensors[0] if tensors else None)
    dtype = model.dtype if model is not None and model.dtype.is_floating_point else dtypes.DEFAULT_FLOAT
    device = None if model is None else model.device
    return [v if isinstance(v, Tensor) else Tensor(v, dtype=dtype, device=device) for v in values]


def broadcast_parameters(*values: Any) -> list[Tensor]:
    """Convert parameters to tensors of one shape. Raises ValueError if the shapes do not broadcast."""
    tensors = as_parameters(*values)
    shape = np.broadcast_shapes(*(t.shape for t in tensors))
    return [expanded(t, shape) for t in tensors]


def expanded(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast `x` to `shape`."""
    return x if x.shape == shape else ops.broadcast_to(x, shape)


def sum_rightmost(x: Tensor, count: int) -> Tensor:
    """Sum the last `count` axes."""
    return ops.sum(x, axis=tuple(range(-count, 0))) if count else x


def probs_of(logits: Tensor, is_binary: bool) -> Tensor:
    """Return probabilities from log-odds or from normalized log-probabilities."""
    return ops.sigmoid(logits) if is_binary else ops.softmax(logits, axis=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Keep probabilities away from 0 and 1 by one machine epsilon, so that their logarithms are finite."""
    epsilon = float(dtypes.finfo(probs.dtype).eps)
    return ops.clip(probs, epsilon, 1 - epsilon)


def logits_of(probs: Tensor, is_binary: bool) -> Tensor:
    """Return log-odds or log-probabilities from probabilities, finite also for 0 and 1."""
    clamped = clamp_probs(probs)
    return ops.log(clamped) - ops.log1p(-clamped) if is_binary else ops.log(clamped)


def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """Return x * log1p(y), 0 where x is 0."""
    result: Tensor = special.xlog1py(x, y)
    return result


def ndtr(x: Tensor) -> Tensor:
    """Return the cumulative distribution function of the standard normal distribution."""
    result: Tensor = special.ndtr(x)
    return result
