"""Frequencies of transforms, and shifts that move frequency 0 to the middle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from polyhal.hal.core.memory.host_memory import check_host_memory
from polyhal.hal.device import Device
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.fourier.functions import KEYWORDS
from polyhal.hal.ops.keywords import takes_both_spellings
from polyhal.hal.ops.returns import Returns, returns
from polyhal.tensor import Tensor, make_tensor

_with_keywords = partial(takes_both_spellings, further=KEYWORDS)


def fftfreq(
    n: int, d: float = 1.0, *, dtype: object = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """Return the frequencies of `fft` of `n` samples at distance `d`, in cycles per unit: 0, positive ones, negative ones."""
    check_host_memory("fftfreq", 3 * 8 * n)
    return _made(np.fft.fftfreq(n, d), dtype, device, requires_grad)


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: object = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """Return the frequencies of `rfft` of `n` samples at distance `d`, in cycles per unit."""
    check_host_memory("rfftfreq", 3 * 4 * n)
    return _made(np.fft.rfftfreq(n, d), dtype, device, requires_grad)


def _made(values: np.ndarray, dtype: object, device: Device | str | None, requires_grad: bool) -> Tensor:
    out = make_tensor(values, dtype or "float32", device)
    return out.requires_grad_() if requires_grad else out


@returns(Returns.COPY)
@_with_keywords
def fftshift(x: Any, axes: int | Sequence[int] | None = None) -> Tensor:
    """Move frequency 0 to the middle of `axes`, all by default."""
    return _rolled(x, axes, lambda n: n // 2)


@returns(Returns.COPY)
@_with_keywords
def ifftshift(x: Any, axes: int | Sequence[int] | None = None) -> Tensor:
    """Undo `fftshift`, also for axes of odd length."""
    return _rolled(x, axes, lambda n: -(n // 2))


def _rolled(x: Any, axes: int | Sequence[int] | None, shift: Callable[[int], int]) -> Tensor:
    chosen = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    result: Tensor = FUNCTIONS["roll"](x, tuple(shift(x.shape[a]) for a in chosen), tuple(chosen))
    return result
