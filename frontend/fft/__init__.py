"""Discrete Fourier transforms, with the names and arguments of `torch.fft` and of the Array API's extension of that name.

They run on the host, by NumPy's pocketfft: `polyhal.explain` shows it. They take float32, float64, complex64 and complex128,
and have gradients of every order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from polyhal.hal.device import Device
from polyhal.hal.memory.host_memory import check_host_memory
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.fourier import functions
from polyhal.hal.ops.returns import Returns, returns
from polyhal.tensor import Tensor, make_tensor

F = TypeVar("F", bound=Callable[..., Any])


def _with_dim(function: F) -> F:
    """Let a function also take PyTorch's names `input` and `dim`; the latter names one axis or several."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if "dim" in keywords:
            keywords["axis" if "axis" in names else "axes"] = keywords.pop("dim")
        if "input" in keywords:
            keywords["x"] = keywords.pop("input")
        return function(*args, **keywords)

    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return call  # type: ignore[return-value]


def _transform(function: F) -> F:
    """Return a transform with PyTorch's names and a result in new memory, even where nothing has to be computed."""
    return returns(Returns.COPY)(_with_dim(function))


fft, ifft = _transform(functions.fft), _transform(functions.ifft)
fft2, ifft2 = _transform(functions.fft2), _transform(functions.ifft2)
fftn, ifftn = _transform(functions.fftn), _transform(functions.ifftn)
rfft, irfft = _transform(functions.rfft), _transform(functions.irfft)
rfft2, irfft2 = _transform(functions.rfft2), _transform(functions.irfft2)
rfftn, irfftn = _transform(functions.rfftn), _transform(functions.irfftn)
hfft, ihfft = _transform(functions.hfft), _transform(functions.ihfft)
hfft2, ihfft2 = _transform(functions.hfft2), _transform(functions.ihfft2)
hfftn, ihfftn = _transform(functions.hfftn), _transform(functions.ihfftn)


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
@_with_dim
def fftshift(x: Any, axes: int | Sequence[int] | None = None) -> Tensor:
    """Move frequency 0 to the middle of `axes`, all by default."""
    return _rolled(x, axes, lambda n: n // 2)


@returns(Returns.COPY)
@_with_dim
def ifftshift(x: Any, axes: int | Sequence[int] | None = None) -> Tensor:
    """Undo `fftshift`, also for axes of odd length."""
    return _rolled(x, axes, lambda n: -(n // 2))


def _rolled(x: Any, axes: int | Sequence[int] | None, shift: Callable[[int], int]) -> Tensor:
    chosen = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    result: Tensor = FUNCTIONS["roll"](x, tuple(shift(x.shape[a]) for a in chosen), tuple(chosen))
    return result


__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]
