"""Encodings of positions: added waves, and rotations of queries and keys."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from polyhal import functions as ops
from polyhal.creation import empty
from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn.dropout import Dropout
from polyhal.nn.module import Module
from polyhal.tensor import Tensor

_rotary = FUNCTIONS["rotary"]


class Rotation(NamedTuple):
    """The rotation of pairs of features at the positions of a call, by cosines and sines (..., L, dim/2)."""

    cos: Tensor
    sin: Tensor
    interleaved: bool = False

    def of(self, input: Tensor) -> Tensor:
        """Rotate `input` (..., L, D), as `RotaryEmbedding.rotate` does."""
        dim = 2 * self.cos.shape[-1]
        if input.shape[-1] > dim:
            return ops.concat([self.of(input[..., :dim]), input[..., dim:]], -1)
        rotated: Tensor = _rotary(input, self.cos, self.sin, self.interleaved)
        return rotated


class PositionalEncoding(Module):
    """Adds sines and cosines of the position to (N, L, E), then dropout.

    Source: Vaswani et al., arXiv:1706.03762, 3.5. Raises ShapeError for more than `max_length` positions.
    """

    table: Tensor

    def __init__(
        self,
        embed_dim: int,
        max_length: int = 5000,
        dropout: float = 0.0,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.max_length = max_length
        angles = np.arange(max_length)[:, None] * np.exp(-math.log(10000.0) / embed_dim * np.arange(0, embed_dim, 2))
        waves = np.zeros((max_length, embed_dim))
        waves[:, 0::2] = np.sin(angles)
        waves[:, 1::2] = np.cos(angles[:, : embed_dim // 2])
        self.register_buffer("table", Tensor(waves, dtype=dtype or dtypes.float32, device=device), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if length > self.max_length:
            raise ShapeError(
                message("PositionalEncoding", f"{length} positions", expected=f"at most {self.max_length}")
            )
        out: Tensor = self.dropout(x + self.table[:length])
        return out


class Frequencies(Protocol):
    """A rule for the frequencies of rotary positions."""

    def frequencies(self, dim: int, theta: float) -> tuple[np.ndarray, float]:
        """Return the angles per position (dim/2,), and the factor of cosines and sines."""


class RotaryEmbedding(Module):
    """Rotates pairs of features of queries or keys (..., L, dim) by angles that grow with the position.

    Feature i is paired with feature i + dim/2, or with its neighbour if `interleaved`; the angle of pair i at position p
    is `p * base**(-2 i / dim)`, or the multiple of p by the rule `scaling`, such as a `models.RopeScaling`.
    Source: Su et al., arXiv:2104.09864. Raises ShapeError, and ValueError for an odd `dim`.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        dim: int,
        max_length: int = 2048,
        base: float = 10000.0,
        interleaved: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
        scaling: Frequencies | None = None,
    ) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"dim is {dim}; expected an even number")
        self.dim = dim
        self.max_length = max_length
        self.base = base
        self.interleaved = interleaved
        kind = dtype or dtypes.float32
        empty(
            (max_length, dim // 2), dtype=kind, device=device
        )  # raises for a length beyond all memory, before the host tries
        plain = base ** (-np.arange(0, dim, 2) / dim)
        frequencies, factor = (plain, 1.0) if scaling is None else scaling.frequencies(dim, base)
        angles = np.arange(max_length)[:, None] * frequencies
        self.register_buffer("cos", Tensor(np.cos(angles) * factor, dtype=kind, device=device), persistent=False)
        self.register_buffer("sin", Tensor(np.sin(angles) * factor, dtype=kind, device=device), persistent=False)

    def forward(self, input: Tensor, start: int = 0) -> Tensor:
        """Rotate `input`, whose first position is `start`."""
        length, width = input.shape[-2:]
        if width != self.dim or start + length > self.max_length:
            problem = f"positions {start} to {start + length} of shape {input.shape}"
            expected = f"(..., L, {self.dim}) and at most {self.max_length} positions"
            raise ShapeError(message("RotaryEmbedding", problem, expected=expected))
        return self.rotate(input, self.angles(start, length))

    def angles(self, start: int, length: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (length, dim/2) of the positions beginning at `start`.

        All layers of a model rotate by the same angles, so it calls this once.
        """
        if start == 0:
            return self.cos[:length], self.sin[:length]
        # By lookup: a view per position would leave a plan per position in the cache.
        return self.angles_at(ops.arange(0, length, 1, dtypes.int32, device=self.cos.device) + start)

    def angles_at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (..., L, dim/2) of positions (..., L)."""
        return self.cos[positions], self.sin[positions]

    def rotate(self, input: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate `input` (..., L, dim) by `angles`; the result has its dtype. Features after the first `dim` are kept."""
        return Rotation(*angles, self.interleaved).of(input)

    def extra_repr(self) -> str:
        return f"{self.dim}, max_length={self.max_length}, base={self.base}, interleaved={self.interleaved}"
