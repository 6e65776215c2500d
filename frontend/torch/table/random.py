"""Random numbers, from Polyhal's generator."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from polyhal.hal import dtypes
from polyhal.random import Generator, default_generator
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, cast


class _Source(threading.local):
    generator = default_generator


_SOURCE = _Source()


@contextmanager
def drawing_from(generator: Generator) -> Iterator[None]:
    """Let functions of the table draw from `generator` inside the block."""
    before, _SOURCE.generator = _SOURCE.generator, generator
    try:
        yield
    finally:
        _SOURCE.generator = before


def take(count: int) -> tuple[int, int]:
    """Seed and offset under which the next `count` 32-bit words of the generator in use are drawn."""
    return _SOURCE.generator.take(count)


def uniform_numbers(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """Numbers from [0, 1)."""
    return F["uniform"](*take(math.prod(shape)), shape, dtype, device=device)


def normal_numbers(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """Numbers of mean 0 and variance 1."""
    return F["normal"](*take(2 * math.prod(shape)), shape, dtype, device=device)


@aten("uniform")
def uniform(x: Any, low: float = 0.0, high: float = 1.0) -> Any:
    return uniform_numbers(x.shape, x.dtype, x.device) * (high - low) + low


@aten("normal_functional", "normal_")
def normal(x: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    return normal_numbers(x.shape, x.dtype, x.device) * std + mean


@aten("bernoulli.p", "bernoulli_.float")
def bernoulli(x: Any, p: float = 0.5) -> Any:
    return cast(uniform_numbers(x.shape, dtypes.float32, x.device) < p, x.dtype)


@aten("native_dropout")
def dropout(x: Any, p: float, train: bool | None) -> Any:
    """The kept elements, scaled up, and which they are."""
    if train is False or p == 0:
        return F["copy"](x), F["full"](x.shape, True, dtypes.bool_, device=x.device)
    kept = uniform_numbers(x.shape, dtypes.float32, x.device) >= p
    return F["where"](kept, x * (1 / (1 - p) if p < 1 else 0.0), 0.0), kept


@aten("native_dropout_backward")
def dropout_backward(grad: Any, mask: Any, scale: float) -> Any:
    return F["where"](mask, grad * scale, 0.0)
