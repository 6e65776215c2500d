"""Windows of a long sequence of tokens, for training language models."""

from __future__ import annotations

import numpy as np

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.tensor_like import Array
from polyhal.random import Generator


class TokenWindows:
    """Pairs of `length` tokens and the `length` tokens one position later, as int32.

    Windows start `stride` tokens after each other (by default `length`, so that each token is predicted once). With
    `samples`, as many windows start at random positions instead, determined by `seed`. `tokens` may be a memory-mapped
    file; it is not copied. Raises TypeError for tokens that are not a vector of integers, ValueError for `length` or
    `stride` below 1, and ShapeError for fewer tokens than a window has.
    """

    def __init__(
        self, tokens: Array, length: int, stride: int | None = None, samples: int | None = None, seed: int = 0
    ) -> None:
        self.tokens: np.ndarray = tokens if isinstance(tokens, np.ndarray) else np.asarray(tokens)
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in "iu":
            raise TypeError(
                message(
                    "TokenWindows",
                    f"tokens are {self.tokens.dtype} of shape {self.tokens.shape}",
                    expected="a vector of integers",
                )
            )
        if length < 1 or (stride is not None and stride < 1):
            raise ValueError(message("TokenWindows", f"length {length} and stride {stride}", expected="1 or more"))
        positions = len(self.tokens) - length
        if positions < 1:
            raise ShapeError(
                message(
                    "TokenWindows",
                    f"{len(self.tokens)} tokens",
                    expected=f"more than one window of {length}",
                    fix="shorten it",
                )
            )
        self.length = length
        if samples is None:
            self.starts = np.arange(0, positions, length if stride is None else stride)
        else:
            words = Generator(seed).words(2 * samples).astype(np.uint64)
            wide = words[:samples] << np.uint64(32) | words[samples:]
            self.starts = (wide % np.uint64(positions)).astype(np.int64)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        start = int(self.starts[index])
        window = np.asarray(self.tokens[start : start + self.length + 1]).astype(np.int32)
        return window[:-1], window[1:]

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and targets (B, length) of the windows at `indices`."""
        positions = self.starts[indices][:, None] + np.arange(self.length + 1)
        windows = self.tokens[positions].astype(np.int32)
        return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])
