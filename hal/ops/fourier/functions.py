"""The functions of `polyhal.fft`, with the arguments of `torch.fft` and of the Array API's extension of that name.

`norm` says where the sums over n terms are divided: "backward" (the default) divides inverse transforms by n, "forward" the
others, "ortho" each by the square root. Operands are padded with zeros, or cut, to `n` or `s` along the transformed axes.
Integers are transformed as float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.errors import ShapeError, UnsupportedDTypeError, message
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.complex_numbers.functions import conj
from polyhal.hal.ops.complex_numbers.rules import imag, join, real
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.fourier.transforms import fourier, half_fourier, real_fourier
from polyhal.hal.ops.layout.regions import pad
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.tensor_like import TensorLike

KEYWORDS = {"x": "input", "axes": "dim"}
"""PyTorch's spelling of parameters; `dim` names one axis or several."""
_published = composite("fft.", public=False, returns=Returns.COPY, keywords=KEYWORDS)
Lengths = Sequence[int] | None
Axes = int | Sequence[int] | None
Norm = str | None
_LAST_TWO = (-2, -1)


def _scale(name: str, norm: Norm, inverse: bool, count: int) -> float:
    match norm:
        case None | "backward":
            return 1 / count if inverse else 1.0
        case "forward":
            return 1.0 if inverse else 1 / count
        case "ortho":
            return 1 / math.sqrt(count)
    raise ShapeError(message(name, f"norm {norm!r}", expected='"backward", "ortho" or "forward"'))


def _in_float(name: str, x: Any) -> Any:
    if x.dtype.kind in ("bool", "int", "uint"):
        return x.cast(dtype=dtypes.DEFAULT_FLOAT)
    if dtypes.component(x.dtype) not in (dtypes.float32, dtypes.float64):
        expected = "float32, float64, complex64 or complex128"
        raise UnsupportedDTypeError(message(name, f"got {x.dtype.name}", expected=expected, fix="cast with .to(dtype)"))
    return x


def _axes_and_lengths(name: str, x: TensorLike, s: Lengths, axes: Axes) -> tuple[tuple[int, ...], list[int]]:
    """The axes, counted from the front, and the length that each has in the transform; -1 stands for that of `x`."""
    if isinstance(axes, int):
        axes = (axes,)
    if axes is None:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            raise ShapeError(message(name, f"{count} lengths for a tensor of {x.ndim} axes"))
        axes = range(x.ndim - count, x.ndim)
    try:
        counted = tuple(normalize_axis(a, x.ndim) for a in axes)
    except ValueError as error:
        raise ShapeError(message(name, str(error))) from error
    if len(set(counted)) != len(counted):
        raise ShapeError(message(name, f"axes {tuple(axes)}", expected="different ones"))
    if s is not None and len(s) != len(counted):
        raise ShapeError(message(name, f"{len(s)} lengths for {len(counted)} axes", expected="one for each"))
    lengths = [x.shape[a] if n == -1 else int(n) for a, n in zip(counted, s or [-1] * len(counted), strict=True)]
    if any(n < 1 for n in lengths):
        raise ShapeError(message(name, f"lengths {lengths}", expected="1 or more"))
    return counted, lengths


def _cut(x: TensorLike, axes: Sequence[int], lengths: Sequence[int]) -> Any:
    """`x` cut at the end of `axes`."""
    target = dict(zip(axes, lengths, strict=True))
    cut = tuple(min(n, target.get(a, n)) for a, n in enumerate(x.shape))
    return x if cut == tuple(x.shape) else slice_(x, (0,) * x.ndim, cut, (1,) * x.ndim)


def _resized(x: TensorLike, axes: Sequence[int], lengths: Sequence[int]) -> Any:
    """`x` cut or padded with zeros at the end of `axes`."""
    x, target = _cut(x, axes, lengths), dict(zip(axes, lengths, strict=True))
    widths = tuple((0, target.get(a, n) - n) for a, n in enumerate(x.shape))
    return pad(x, widths) if any(after for _, after in widths) else x


def _transform(name: str, x: TensorLike, s: Lengths, axes: Axes, norm: Norm, inverse: bool) -> Any:
    """Complex to complex."""
    x = _in_float(name, x)
    axes, lengths = _axes_and_lengths(name, x, s, axes)
    scale = _scale(name, norm, inverse, math.prod(lengths))
    x = _cut(x, axes, lengths)
    if not axes:
        return join(real(x), imag(x))
    return join(*fourier(real(x), imag(x), axes, inverse, scale, tuple(lengths)))


def _of_real(name: str, x: TensorLike, s: Lengths, axes: Axes, norm: Norm, inverse: bool) -> Any:
    """Real to half a spectrum, which an inverse transform conjugates."""
    if is_complex(x):
        raise UnsupportedDTypeError(message(name, f"got {x.dtype.name}", expected="real numbers", fix="use fftn"))
    x = _in_float(name, x)
    axes, lengths = _axes_and_lengths(name, x, s, axes)
    _require_axes(name, axes)
    scale = _scale(name, norm, inverse, math.prod(lengths))
    out = join(*real_fourier(_cut(x, axes, lengths), axes, scale, tuple(lengths)))
    return conj(out) if inverse else out


def _to_real(name: str, x: TensorLike, s: Lengths, axes: Axes, norm: Norm, inverse: bool) -> Any:
    """Half a spectrum to real numbers; a transform that is not inverse is that of the conjugate."""
    x = _in_float(name, x)
    given = None if s is None else list(s)
    if given and given[-1] != -1:
        n = int(given[-1])
        given[-1] = n // 2 + 1 if n > 0 else 0
    counted, lengths = _axes_and_lengths(name, x, given, axes)
    _require_axes(name, counted)
    length = int(s[-1]) if s is not None and s[-1] != -1 else 2 * (lengths[-1] - 1)
    if length < 1:
        raise ShapeError(message(name, f"length {length}", expected="1 or more"))
    scale = _scale(name, norm, inverse, math.prod(lengths[:-1]) * length)
    x = _resized(x, counted, lengths)
    re, im = real(x), imag(x)
    return half_fourier(re, im if inverse else -im, counted, length, scale)


def _require_axes(name: str, axes: Sequence[int]) -> None:
    if not axes:
        raise ShapeError(message(name, "no axes", expected="one at least"))


def _one(n: int | None) -> Lengths:
    return None if n is None else (n,)


@_published
def fft(x: TensorLike, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The discrete Fourier transform along one axis.

    >>> polyhal.fft.fft(polyhal.tensor([1.0, 0.0])).real.tolist()
    [1.0, 1.0]
    """
    return _transform("fft", x, _one(n), axis, norm, False)


@_published
def ifft(x: TensorLike, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The inverse of `fft`. Complex, of the same shape as the spectrum unless `n` is given."""
    return _transform("ifft", x, _one(n), axis, norm, True)


@_published
def fft2(x: TensorLike, s: Lengths = None, axes: Axes = _LAST_TWO, norm: Norm = None) -> Any:
    """The discrete Fourier transform along two axes."""
    return _transform("fft2", x, s, axes, norm, False)


@_published
def ifft2(x: TensorLike, s: Lengths = None, axes: Axes = _LAST_TWO, norm: Norm = None) -> Any:
    """The inverse of `fft2`. Complex, of the same shape as the spectrum unless `s` is given."""
    return _transform("ifft2", x, s, axes, norm, True)


@_published
def fftn(x: TensorLike, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Any:
    """The discrete Fourier transform along several axes: all by default, or with `s` as many of the last."""
    return _transform("fftn", x, s, axes, norm, False)


@_published
def ifftn(x: TensorLike, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Any:
    """The inverse of `fftn`. Complex, of the same shape as the spectrum unless `s` is given."""
    return _transform("ifftn", x, s, axes, norm, True)


@_published
def rfft(x: TensorLike, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The first n // 2 + 1 numbers of the transform of real numbers; the others are conjugates of these.

    >>> polyhal.fft.rfft(polyhal.tensor([1.0, 0.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0]
    """
    return _of_real("rfft", x, _one(n), axis, norm, False)


@_published
def irfft(x: TensorLike, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The inverse of `rfft`: `n` real numbers, by default twice as many as `x` has, less 2."""
    return _to_real("irfft", x, _one(n), axis, norm, True)


@_published
def rfft2(x: TensorLike, s: Lengths = None, axes: Axes = _LAST_TWO, norm: Norm = None) -> Any:
    """The transform of real numbers along two axes; half of it along the last one."""
    return _of_real("rfft2", x, s, axes, norm, False)


@_published
def irfft2(x: TensorLike, s: Lengths = None, axes: Axes = _LAST_TWO, norm: Norm = None) -> Any:
    """The inverse of `rfft2`. Real; the last axis has by default length 2 (m - 1) for m elements."""
    return _to_real("irfft2", x, s, axes, norm, True)


@_published
def rfftn(x: TensorLike, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Any:
    """The transform of real numbers along several axes; half of it along the last one."""
    return _of_real("rfftn", x, s, axes, norm, False)


@_published
def irfftn(x: TensorLike, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Any:
    """The inverse of `rfftn`. Real; the last axis has by default length 2 (m - 1) for m elements."""
    return _to_real("irfftn", x, s, axes, norm, True)


@_published
def hfft(x: TensorLike, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The real spectrum of a signal that is its own mirrored conjugate, given by its first half.

    The axis has length `n`, by default 2 (m - 1) for m elements.
    """
    return _to_real("hfft", x, _one(n), axis, norm, False)


@_published
def ihfft(x: TensorLike, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The inverse of `hfft`. The axis has length n // 2 + 1."""
    return _of_real("ihfft", x, _one(n), axis, norm, True)


@_published
def hfft2(x: TensorLike, s: Lengths = None, axes: Axes = _LAST_TWO, norm: Norm = None) -> Any:
    """As `hfft`, along two axes; halved along the last one."""
    return _to_real("hfft2", x, s, axes, norm, False)


@_published
def ihfft2(x: TensorLike, s: Lengths = None, axes: Axes = _LAST_TWO, norm: Norm = None) -> Any:
    """The inverse of `hfft2`. The last axis has length n // 2 + 1."""
    return _of_real("ihfft2", x, s, axes, norm, True)


@_published
def hfftn(x: TensorLike, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Any:
    """As `hfft`, along several axes; halved along the last one."""
    return _to_real("hfftn", x, s, axes, norm, False)


@_published
def ihfftn(x: TensorLike, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Any:
    """The inverse of `hfftn`. The last axis has length n // 2 + 1."""
    return _of_real("ihfftn", x, s, axes, norm, True)
