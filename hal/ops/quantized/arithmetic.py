"""The functions in which formats of quantised weights are decoded, as ops of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.ops.layout.regions import stack
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.pointwise.logic import bitwise_and, bitwise_left_shift, bitwise_right_shift, equal, greater
from polyhal.hal.ops.pointwise.selection import where


class DeviceArithmetic:
    """Implements `polyhal.hal.quantization.block_format.BlockArithmetic` on tensors."""

    def masked(self, x: Any, bits: int) -> Any:
        return bitwise_and(x, bits)

    def right(self, x: Any, places: int) -> Any:
        return bitwise_right_shift(x, places) if places else x

    def left(self, x: Any, places: int) -> Any:
        return bitwise_left_shift(x, places)

    def part(self, x: Any, first: int, last: int) -> Any:
        return x[..., first:last]

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return reshape(x, shape)

    def stack(self, arrays: Sequence[Any], axis: int) -> Any:
        return stack(arrays, axis)

    def floats(self, x: Any) -> Any:
        return cast(x, dtype=dtypes.float32)

    def signed_bytes(self, x: Any) -> Any:
        return x - bitwise_left_shift(bitwise_and(x, 128), 1)

    def halfs(self, x: Any) -> Any:
        pairs = reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
        low, high = pairs[..., 0], pairs[..., 1]
        exponent = bitwise_and(bitwise_right_shift(high, 2), 31)
        mantissa = self.floats(low + bitwise_left_shift(bitwise_and(high, 3), 8))
        normal = greater(exponent, 0)
        magnitude = where(normal, mantissa + 1024.0, mantissa) * self._power(where(normal, exponent, 1), 5) * 2.0**-25
        special = greater(exponent, 30)  # infinity, as a product beyond float32, and NaN, as 0 times it
        magnitude = magnitude * where(special, 2.0**127, 1.0)
        magnitude = magnitude * where(special, where(greater(mantissa, 0.0), 0.0, 1.0), 1.0)
        return where(greater(high, 127), magnitude * -1.0, magnitude)

    def powers(self, x: Any) -> Any:
        low = self._power(x, 7)
        return where(greater(x, 127), low, low * 2.0**-64 * 2.0**-64)

    def looked_up(self, table: tuple[float, ...], x: Any) -> Any:
        found = self.floats(x) * 0.0
        for i, value in enumerate(table):
            if value:
                found = where(equal(x, i), float(value), found)
        return found

    def _power(self, exponent: Any, bits: int) -> Any:
        """2 to the power of the lowest bits of `exponent`, exactly."""
        power: Any = 1.0
        for i in range(bits):
            power = where(greater(bitwise_and(exponent, 1 << i), 0), 2.0 ** (1 << i), 1.0) * power
        return power
