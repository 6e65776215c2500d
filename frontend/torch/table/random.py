"""Random numbers, from Polyhal's generator."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polyhal
from polyhal.hal import dtypes
from polyhal.hal.dtypes import component
from polyhal.random import Generator, default_generator
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, cast, is_tensor

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType
    from polyhal.tensor import Tensor


class _Source(threading.local):
    generator = default_generator


_SOURCE = _Source()


@contextmanager
def drawing_from(generator: Generator) -> Iterator[None]:
    """Let table functions draw from `generator` inside the block."""
    before, _SOURCE.generator = _SOURCE.generator, generator
    try:
        yield
    finally:
        _SOURCE.generator = before


def take(count: int) -> tuple[int, int]:
    """Reserve the next `count` 32-bit words of the generator in use; return seed and offset."""
    return _SOURCE.generator.take(count)


def uniform_numbers(shape: tuple[int, ...], dtype: DType, device: Device | None) -> Any:
    """Draw numbers from [0, 1)."""
    if dtype.is_complex:
        return F["view_as_complex"](uniform_numbers((*shape, 2), component(dtype), device))
    return F["uniform"](*take(math.prod(shape)), shape, dtype, device=device)


def normal_numbers(shape: tuple[int, ...], dtype: DType, device: Device | None) -> Any:
    """Draw normal numbers of mean 0 and variance 1; real and imaginary parts of complex numbers have variance 1/2."""
    if dtype.is_complex:
        return F["view_as_complex"](normal_numbers((*shape, 2), component(dtype), device) * math.sqrt(0.5))
    return F["normal"](*take(2 * math.prod(shape)), shape, dtype, device=device)


@aten("uniform")
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0) -> Any:
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    return uniform_numbers(x.shape, x.dtype, x.device) * (high - low) + low


@aten("normal_functional", "normal_")
def normal(x: Tensor, mean: float = 0.0, std: float = 1.0) -> Any:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return normal_numbers(x.shape, x.dtype, x.device) * std + mean


@aten("bernoulli.p", "bernoulli_.float")
def bernoulli(x: Tensor, p: float = 0.5) -> Any:
    return cast(uniform_numbers(x.shape, dtypes.float32, x.device) < p, x.dtype)


@aten("bernoulli_.Tensor")
def bernoulli_each(x: Tensor, p: Any) -> Any:
    return cast(uniform_numbers(x.shape, dtypes.float32, x.device) < p, x.dtype)


def _drawn(method: str, x: Tensor, *args: Any) -> Any:
    """Draw numbers in the shape and dtype of `x` with a method of Polyhal's tensors."""
    return getattr(polyhal.empty(x.shape, dtype=x.dtype, device=x.device), method)(*args, generator=_SOURCE.generator)


@aten("random_")
def random_all(x: Tensor) -> Any:
    return _drawn("random_", x)


@aten("random_.to")
def random_to(x: Tensor, to: int) -> Any:
    return _drawn("random_", x, 0, to)


@aten("random_.from")
def random_from(x: Tensor, start: int, to: int | None) -> Any:
    return _drawn("random_", x, start, to)


@aten("exponential_")
def exponential(x: Tensor, lambd: float = 1.0) -> Any:
    return _drawn("exponential_", x, lambd)


@aten("cauchy_")
def cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0) -> Any:
    return _drawn("cauchy_", x, median, sigma)


@aten("geometric_")
def geometric(x: Tensor, p: float) -> Any:
    return _drawn("geometric_", x, p)


@aten("log_normal_")
def log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0) -> Any:
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return _drawn("log_normal_", x, mean, std)


@aten("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_each(mean: Tensor, std: Any = 1.0) -> Any:
    kind = (mean if is_tensor(mean) else std).dtype
    places = mean if not is_tensor(std) else std if not is_tensor(mean) else F["broadcast_tensors"](mean, std)[0]
    return normal_numbers(places.shape, kind, places.device) * std + mean


@aten("multinomial")
def multinomial(x: Tensor, num_samples: int, replacement: bool = False) -> Any:
    return polyhal.multinomial(x, num_samples, replacement, generator=_SOURCE.generator)


@aten("poisson")
def poisson(rates: Tensor) -> Any:
    return polyhal.poisson(rates, _SOURCE.generator)


@aten("binomial")
def binomial(count: Tensor, prob: Tensor) -> Any:
    return polyhal.binomial(count, prob, _SOURCE.generator)


@aten("randperm", "randperm.generator")
def randperm(n: int, *, dtype: DType = dtypes.int64, device: Device | None = None) -> Any:
    return polyhal.randperm(n, dtype=dtype or dtypes.int64, device=device, generator=_SOURCE.generator)


@aten("native_dropout")
def dropout(x: Tensor, p: float, train: bool | None) -> Any:
    """Return the kept elements, scaled up, and their mask."""
    if train is False or p == 0:
        return F["copy"](x), F["full"](x.shape, True, dtypes.bool_, device=x.device)
    kept = uniform_numbers(x.shape, dtypes.float32, x.device) >= p
    return F["where"](kept, x * (1 / (1 - p) if p < 1 else 0.0), 0.0), kept


@aten("native_dropout_backward")
def dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Any:
    return F["where"](mask, grad * scale, 0.0)
