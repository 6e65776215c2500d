"""Fourier transforms. Complex numbers are pairs along the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor


def _complex(x: Tensor) -> Any:
    if x.shape[-1] == 1:
        x = ph.concat([x, ph.zeros_like(x)], -1)
    return ph.view_as_complex(x)


@operator("DFT", host=("length", "axis"))
def dft(
    x: Tensor, length: Value = None, axis: Value = None, *, inverse: int = 0, onesided: int = 0, node: NodeFacts
) -> Any:
    along = (1 if node.version < 20 else -2) if axis is None else integers(axis)[0]
    along %= x.ndim
    count = x.shape[along] if length is None else integers(length)[0]
    if onesided and inverse:
        count = 2 * (x.shape[along] - 1) if length is None else count
        return ph.unsqueeze(ph.fft.irfft(_complex(x), count, along), -1)
    if onesided:
        return ph.view_as_real(ph.fft.rfft(ph.squeeze(x, -1) if x.shape[-1] == 1 else x[..., 0], count, along))
    return ph.view_as_real((ph.fft.ifft if inverse else ph.fft.fft)(_complex(x), count, along))


@operator("STFT", host=("step", "length"))
def stft(x: Tensor, step: Value, window: Value = None, length: Value = None, *, onesided: int = 1) -> Any:
    size = integers(length)[0] if length is not None else window.shape[0]
    stride = integers(step)[0]
    real = x.ndim == 2 or x.shape[-1] == 1
    signal = ph.reshape(x, x.shape[:2]) if real else _complex(x)
    count = (x.shape[1] - size) // stride + 1
    places = np.arange(count)[:, None] * stride + np.arange(size)
    index = ph.tensor(places.reshape(-1), device=x.device)

    def framed(part: Value) -> Any:
        frames = ph.reshape(ph.index_select(part, 1, index), (x.shape[0], count, size))
        return frames if window is None else frames * window

    if real and onesided:
        return ph.view_as_real(ph.fft.rfft(framed(signal), size, -1))
    frames = framed(signal) if real else ph.complex(framed(ph.real(signal)), framed(ph.imag(signal)))
    found = ph.fft.fft(frames, size, -1)
    return ph.view_as_real(found[..., : size // 2 + 1] if onesided else found)
