"""Generated from the op declarations by `make generate`; do not edit."""

from typing import Any

from polyhal.fft.frequencies import fftfreq as fftfreq
from polyhal.fft.frequencies import fftshift as fftshift
from polyhal.fft.frequencies import ifftshift as ifftshift
from polyhal.fft.frequencies import rfftfreq as rfftfreq
from polyhal.tensor import Tensor

def fft(x: Any, n: int | None = ..., axis: int = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The discrete Fourier transform along one axis. Returns a copy."""

def fft2(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The discrete Fourier transform along two axes. Returns a copy."""

def fftn(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The discrete Fourier transform along several axes: all by default, or with `s` as many of the last."""

def hfft(x: Any, n: int | None = ..., axis: int = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The real spectrum of a signal that is its own mirrored conjugate, given by its first half. Returns a copy."""

def hfft2(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """As `hfft`, along two axes; halved along the last one. Returns a copy."""

def hfftn(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """As `hfft`, along several axes; halved along the last one. Returns a copy."""

def ifft(x: Any, n: int | None = ..., axis: int = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `fft`. Complex, of the same shape as the spectrum unless `n` is given. Returns a copy."""

def ifft2(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `fft2`. Complex, of the same shape as the spectrum unless `s` is given. Returns a copy."""

def ifftn(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `fftn`. Complex, of the same shape as the spectrum unless `s` is given. Returns a copy."""

def ihfft(x: Any, n: int | None = ..., axis: int = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `hfft`. The axis has length n // 2 + 1. Returns a copy."""

def ihfft2(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `hfft2`. The last axis has length n // 2 + 1. Returns a copy."""

def ihfftn(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `hfftn`. The last axis has length n // 2 + 1. Returns a copy."""

def irfft(x: Any, n: int | None = ..., axis: int = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `rfft`: `n` real numbers, by default twice as many as `x` has, less 2. Returns a copy."""

def irfft2(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `rfft2`. Real; the last axis has by default length 2 (m - 1) for m elements. Returns a copy."""

def irfftn(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The inverse of `rfftn`. Real; the last axis has by default length 2 (m - 1) for m elements. Returns a copy."""

def rfft(x: Any, n: int | None = ..., axis: int = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The first n // 2 + 1 numbers of the transform of real numbers; the others are conjugates of these."""

def rfft2(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The transform of real numbers along two axes; half of it along the last one. Returns a copy."""

def rfftn(x: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, input: Any = ..., dim: Any = ...) -> Tensor:
    """The transform of real numbers along several axes; half of it along the last one. Returns a copy."""
