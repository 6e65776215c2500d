"""Short-time Fourier transforms: spectra of overlapping windows of a signal, and the signal of such spectra."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.complex_numbers.functions import view_as_real
from polyhal.hal.ops.complex_numbers.rules import real
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.fourier import functions
from polyhal.hal.ops.layout.axes import flip, transpose
from polyhal.hal.ops.layout.creation import full
from polyhal.hal.ops.layout.regions import concat, pad
from polyhal.hal.ops.layout.repeats import sliding_windows
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.tensor_like import TensorLike


@composite()
def stft(
    x: TensorLike,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: TensorLike | int | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Any:
    """Spectra (..., frequencies, windows) of windows of `n_fft` samples, `hop_length` (n_fft // 4) apart, of signals (..., n).

    `window` of `win_length` weighs the middle of each. With `center` the signal is extended at both ends by `pad_mode`, so that
    window t is around sample t * hop_length. `normalized` divides by the square root of `n_fft`. Real signals and windows give
    n_fft // 2 + 1 frequencies unless `onesided` is False, and need `return_complex`; without it, parts are along a last axis.

    >>> x = polyhal.ones(400)
    >>> polyhal.stft(x, n_fft=64, window=polyhal.hann_window(64), return_complex=True).shape
    (33, 26)
    """
    _require("stft", x.ndim in (1, 2), f"shape {x.shape}", "(n,) or (batch, n)")
    hop, weights = _frame("stft", x, n_fft, hop_length, win_length, window)
    complex_input = is_complex(x) or is_complex(weights)
    if return_complex is None:
        _require("stft", complex_input, "return_complex is not given for real numbers", "True or False")
        return_complex = True
    if center:
        x = _extended(x, n_fft // 2, pad_mode)
    _require("stft", x.shape[-1] >= n_fft, f"{x.shape[-1]} samples", f"n_fft, {n_fft}, at least")
    frames = sliding_windows(x, -1, n_fft, hop) * weights
    norm = "ortho" if normalized else None
    half = not complex_input if onesided is None else onesided
    out = functions.rfft(frames, norm=norm) if half else functions.fft(frames, norm=norm)
    out = transpose(out)
    return out if return_complex else view_as_real(out)


@composite()
def istft(
    x: TensorLike,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: TensorLike | int | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """The signals (..., n) of least squared error whose short-time spectra are `x` (..., frequencies, windows).

    Arguments are those of `stft`; n is `length` if given. Samples that no window covers are NaN (Griffin and Lim 1984).
    """
    _require("istft", is_complex(x) and x.ndim in (2, 3), f"{x.dtype.name} of shape {x.shape}", "complex (..., f, t)")
    hop, weights = _frame("istft", real(x), n_fft, hop_length, win_length, window)
    half = x.shape[-2] != n_fft if onesided is None else onesided
    frequencies = n_fft // 2 + 1 if half else n_fft
    _require("istft", x.shape[-2] == frequencies, f"{x.shape[-2]} frequencies", str(frequencies))
    norm = "ortho" if normalized else None
    spectra, count = transpose(x), x.shape[-1]
    if return_complex:
        _require("istft", not half, "return_complex with half a spectrum", "onesided=False")
        frames = functions.ifft(spectra, norm=norm)
    else:
        frames = functions.irfft(spectra, n_fft, norm=norm)  # which reads the first half of a whole spectrum
    total = _added_up(frames * weights, hop)
    power = _added_up(broadcast_to(weights * weights, (count, n_fft)), hop)
    start = n_fft // 2 if center else 0
    whole = n_fft + hop * (count - 1)
    stop = start + length if length is not None else whole - (n_fft // 2 if center else 0)
    out = total[..., start : min(stop, whole)] / power[start : min(stop, whole)]
    return out if stop <= whole else pad(out, ((0, 0),) * (out.ndim - 1) + ((0, stop - whole),))


def _require(name: str, holds: bool, problem: str, expected: str) -> None:
    if not holds:
        raise ShapeError(message(name, problem, expected=expected))


def _frame(name: str, x: TensorLike, n_fft: int, hop: int | None, size: int | None, window: Any) -> tuple[int, Any]:
    """The distance of windows, and their weights, of length `n_fft`."""
    hop, size = n_fft // 4 if hop is None else hop, n_fft if size is None else size
    _require(name, n_fft > 0, f"n_fft {n_fft}", "a positive number")
    _require(name, hop > 0, f"hop_length {hop}", "a positive number")
    _require(name, 0 < size <= n_fft, f"win_length {size}", f"1 to n_fft, {n_fft}")
    dtype = dtypes.component(x.dtype)
    if window is None:
        window = full((size,), 1, dtype if dtype.kind == "float" else dtypes.DEFAULT_FLOAT, device=x.device)
    _require(name, tuple(window.shape) == (size,), f"a window of shape {tuple(window.shape)}", f"win_length, ({size},)")
    left = (n_fft - size) // 2
    return hop, window if size == n_fft else pad(window, ((left, n_fft - size - left),))


def _extended(x: TensorLike, width: int, mode: str) -> Any:
    """`x` with `width` samples before and after."""
    if not width:
        return x
    n = x.shape[-1]
    match mode:
        case "constant":
            return pad(x, ((0, 0),) * (x.ndim - 1) + ((width, width),))
        case "reflect":
            _require("stft", width < n, f"{n} samples, to be extended by {width} mirrored ones", "more samples")
            ends = flip(x[..., 1 : width + 1], -1), flip(x[..., n - width - 1 : n - 1], -1)
        case "replicate":
            shape = (*x.shape[:-1], width)
            ends = broadcast_to(x[..., :1], shape), broadcast_to(x[..., -1:], shape)
        case "circular":
            _require("stft", width <= n, f"{n} samples, to be extended by {width}", "more samples")
            ends = x[..., n - width :], x[..., :width]
        case _:
            raise ShapeError(message("stft", f"pad_mode {mode!r}", expected="reflect, constant, replicate or circular"))
    return concat([ends[0], x, ends[1]], -1)


def _added_up(frames: TensorLike, hop: int) -> Any:
    """The sum of frames (..., t, n) at their places, `hop` apart: (..., n + hop * (t - 1)).

    Each frame is cut into blocks of `hop` samples; blocks at the same place in their frames are side by side in the result.
    """
    *lead, count, n = frames.shape
    blocks = math.ceil(n / hop)
    unchanged = ((0, 0),) * len(lead)
    if blocks * hop != n:
        frames = pad(frames, (*unchanged, (0, 0), (0, blocks * hop - n)))
    cut = reshape(frames, (*lead, count, blocks, hop))
    total: Any = None
    for k in range(blocks):
        placed = pad(cut[..., k, :], (*unchanged, (k, blocks - 1 - k), (0, 0)))
        total = placed if total is None else total + placed
    return reshape(total, (*lead, (count + blocks - 1) * hop))[..., : n + hop * (count - 1)]
