"""Fourier transforms, and complex tensors from real ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_BY_ROOT, _BY_LENGTH = 1, 2


def _scale(normalization: int, count: int) -> float:
    """Return the factor of PyTorch's normalization code for `count` elements: 1 / sqrt(count), 1 / count or 1."""
    return {_BY_ROOT: 1 / math.sqrt(max(count, 1)), _BY_LENGTH: 1 / max(count, 1)}.get(normalization, 1.0)


def _count(x: Tensor, dim: list[int]) -> int:
    return math.prod(x.shape[a] for a in dim)


@aten("_fft_c2c")
def complex_to_complex(x: Tensor, dim: Any, normalization: int, forward: bool) -> Any:
    if not dim:
        return F["copy"](x)
    return F["complex"](*F["fourier"](x.real, x.imag, tuple(dim), not forward, _scale(normalization, _count(x, dim))))


@aten("_fft_r2c")
def real_to_complex(x: Tensor, dim: Any, normalization: int, onesided: bool) -> Any:
    scale = _scale(normalization, _count(x, dim))
    if onesided:
        return F["complex"](*F["real_fourier"](x, tuple(dim), scale))
    return F["complex"](*F["fourier"](x, x * 0, tuple(dim), False, scale))


@aten("_fft_c2r")
def complex_to_real(x: Tensor, dim: Any, normalization: int, last_dim_size: int) -> Any:
    count = _count(x, dim[:-1]) * last_dim_size
    return F["half_fourier"](x.real, x.imag, tuple(dim), last_dim_size, _scale(normalization, count))


@aten("complex")
def complex_of(real: Tensor, imag: Tensor) -> Any:
    if real.dtype is not imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {real.dtype.name} but got {imag.dtype.name} for second argument"
        )
    return F["complex"](real, imag)
