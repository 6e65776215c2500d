"""The functions in which formats are decoded, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class NumpyArithmetic:
    """Implements `BlockArithmetic` on arrays."""

    def masked(self, x: Any, bits: int) -> Any:
        return x & np.int32(bits)

    def right(self, x: Any, places: int) -> Any:
        return x >> np.int32(places)

    def left(self, x: Any, places: int) -> Any:
        return x << np.int32(places)

    def part(self, x: Any, first: int, last: int) -> Any:
        return x[..., first:last]

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.reshape(shape)

    def stack(self, arrays: Sequence[Any], axis: int) -> Any:
        return np.stack(arrays, axis)

    def floats(self, x: Any) -> Any:
        return x.astype(np.float32)

    def signed_bytes(self, x: Any) -> Any:
        return x.astype(np.uint8).view(np.int8).astype(np.int32)

    def halfs(self, x: Any) -> Any:
        return np.ascontiguousarray(x.astype(np.uint8)).view("<f2").astype(np.float32)

    def powers(self, x: Any) -> Any:
        return np.ldexp(np.float32(1), x - 128).astype(np.float32)

    def looked_up(self, table: tuple[float, ...], x: Any) -> Any:
        return np.array(table, np.float32)[x]
