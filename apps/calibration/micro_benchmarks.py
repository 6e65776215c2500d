"""Micro-benchmarks: sweeps of single ops over regular sizes, which are not taken from models.

The simulator is evaluated by predictions of training steps. So no benchmark here is taken from these steps: each sweep covers
a regular range of sizes, and all of its results have equal weight. Sizes depend on the speed of the device, so that one call
takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from polyhal import Device, Tensor, randn
from polyhal.hal.dtypes import DType, float32, int64
from polyhal.hal.ops import FUNCTIONS

Prepare = Callable[[], Callable[[], object]]
"""Function that allocates operands and returns the function to capture and time."""
_COPIES = 6
"""Calls of a small op per step, each on its own operands. Still smaller ones would be grouped into one kernel."""


class MicroBenchmark(NamedTuple):
    """One micro-benchmark."""

    what: str
    prepare: Prepare


class MicroBenchmarks:
    """Micro-benchmarks of a device that performs `rate` operations per second in float32 products.

    No operand is larger than `limit` bytes.
    """

    def __init__(self, device: Device, rate: float, limit: int) -> None:
        self._device = device
        self._limit = limit
        self._flops = rate * 1e-3
        self._scale = max(1, round((self._flops / 2e8) ** 0.5))
        """Size of small operands relative to two CPU cores."""

    def all(self, dtypes: tuple[DType, ...]) -> Iterator[MicroBenchmark]:
        """Yield all benchmarks; products in several dtypes."""
        yield from self._memory()
        for dtype in dtypes:
            yield from self._products(dtype)
        yield from self._attention()
        yield from self._convolutions()
        yield from self._pooling()
        yield from self._pointwise()

    def _randn(self, *shape: int, dtype: DType = float32) -> Tensor:
        x = randn(shape, device=self._device)
        return x if dtype is float32 else x.to(dtype)

    # --- memory ---------------------------------------------------------------------------------------------------

    def _memory(self) -> Iterator[MicroBenchmark]:
        """Yield sums of two vectors, of 1.5 MB to 200 MB, and more on fast devices; several short ones per step."""
        for power in range(17, 25 + (self._scale > 1) * 3):
            copies = _COPIES if power < 19 else 1
            if 4 << power > self._limit:
                return
            yield MicroBenchmark(f"sums of 2^{power} elements", partial(self._sums, 1 << power, copies))

    def _sums(self, size: int, copies: int) -> Callable[[], object]:
        pairs = [(self._randn(size), self._randn(size)) for _ in range(copies)]
        return lambda: [FUNCTIONS["add"](a, b) for a, b in pairs]

    # --- products -------------------------------------------------------------------------------------------------

    def _products(self, dtype: DType) -> Iterator[MicroBenchmark]:
        """Yield square, tall, wide and deep products: plain, with transposed weights, as the weight gradient, and fused."""
        side = 1 << max(4, round((self._flops / 2) ** (1 / 3)).bit_length() - 1)
        for m, k, n in ((2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 1, 1), (1, 1, 1)):
            shape = (m * side, k * side, n * side)
            what = f"of {shape[0]} x {shape[1]} by {shape[1]} x {shape[2]}, {dtype.name}"
            for kind in ("product", "linear", "gradient", "fused") if dtype is float32 else ("product",):
                yield MicroBenchmark(f"{kind} {what}", partial(self._product, shape, dtype, kind))

    def _product(self, shape: tuple[int, int, int], dtype: DType, kind: str) -> Callable[[], object]:
        m, k, n = shape
        op, a = FUNCTIONS, self._randn(m, k, dtype=dtype)
        if kind == "product":
            b = self._randn(k, n, dtype=dtype)
            return lambda: op["matmul"](a, b)
        if kind == "gradient":
            g = self._randn(m, n, dtype=dtype)
            return lambda: op["linear_weight_grad"](g, a)
        w, bias = self._randn(n, k, dtype=dtype), self._randn(n, dtype=dtype)
        if kind == "linear":
            return lambda: op["linear"](a, w, bias)
        return lambda: op["relu"](op["linear"](a, w, bias))

    # --- attention ------------------------------------------------------------------------------------------------

    def _attention(self) -> Iterator[MicroBenchmark]:
        """Yield attention of three lengths, with and without a causal mask, and its gradients."""
        for length in (48, 96, 192):
            for width in (16, 48):
                heads = max(1, round(self._flops / (4 * length * length * width)))
                for causal in (False, True):
                    for gradient in (False, True):
                        size = (heads, length, width)
                        name = (
                            f"{'gradient of ' * gradient}{'causal ' * causal}attention, {heads} of {length} x {width}"
                        )
                        yield MicroBenchmark(name, partial(self._attend, size, causal, gradient))

    def _attend(self, size: tuple[int, int, int], causal: bool, gradient: bool) -> Callable[[], object]:
        heads, length, width = size
        q, k, v, g = (self._randn(1, heads, length, width) for _ in range(4))
        if not gradient:
            return lambda: FUNCTIONS["attention"](q, k, v, causal=causal)
        y, lse = FUNCTIONS["attention"](q, k, v, causal=causal)
        return lambda: FUNCTIONS["attention_grad"](g, q, k, v, y=y, lse=lse, causal=causal)

    # --- convolutions ---------------------------------------------------------------------------------------------

    def _convolutions(self) -> Iterator[MicroBenchmark]:
        """Yield convolutions for all combinations of image sizes and channels, which vary independently."""
        for stride in (1, 2):
            for row in (10, 20, 40) if stride == 1 else (12, 24):
                for channels in (24, 96, 320):
                    for kind in ("conv2d", "conv2d_input_grad", "conv2d_weight_grad"):
                        per_image = 2 * 9 * channels * channels * (row // stride) ** 2
                        batch = max(1, round(self._flops / per_image))
                        if per_image * batch > 4 * self._flops:
                            continue
                        size = (batch, channels, row, stride)
                        name = f"{kind} of {batch} images of {row} x {row}, {channels} channels, stride {stride}"
                        yield MicroBenchmark(name, partial(self._convolve, kind, size))

    def _convolve(self, kind: str, size: tuple[int, int, int, int]) -> Callable[[], object]:
        batch, channels, row, stride = size
        op, out = FUNCTIONS[kind], (row - 1) // stride + 1
        x, w = self._randn(batch, channels, row, row), self._randn(channels, channels, 3, 3)
        g = self._randn(batch, channels, out, out)
        how: dict[str, Any] = {"stride": (stride, stride), "padding": (1, 1)}
        if kind == "conv2d":
            return lambda: op(x, w, **how)
        if kind == "conv2d_input_grad":
            return lambda: op(g, w, (batch, channels, row, row), **how)
        return lambda: op(g, x, (3, 3), **how)

    # --- pooling --------------------------------------------------------------------------------------------------

    def _pooling(self) -> Iterator[MicroBenchmark]:
        """Yield pooling with disjoint and with overlapping windows, and its gradients."""
        for row in (24, 48, 96):
            for window in (2, 3):
                for gradient in (False, True):
                    planes = max(1, self._scale * 400_000 // row**2)
                    name = f"{'gradient of ' * gradient}pooling {window} x {window} of {planes} planes of {row} x {row}"
                    size = (planes, row, window)
                    yield MicroBenchmark(name, partial(self._pool, size, gradient))

    def _pool(self, size: tuple[int, int, int], gradient: bool) -> Callable[[], object]:
        # Disjoint windows take almost no time.
        runs = [self._pool_once(size, gradient) for _ in range(_COPIES if size[2] == 2 else 1)]
        return lambda: [run() for run in runs]

    def _pool_once(self, size: tuple[int, int, int], gradient: bool) -> Callable[[], object]:
        planes, row, window = size
        x, out = self._randn(1, planes, row, row), row // 2
        how: dict[str, Any] = {"kernel": (window, window), "stride": (2, 2), "padding": (window // 3, window // 3)}
        if not gradient:
            return lambda: FUNCTIONS["max_pool2d"](x, **how)
        g = self._randn(1, planes, out, out)
        return lambda: FUNCTIONS["max_pool2d_grad"](g, x, **how)

    # --- ops on every element ---------------------------------------------------------------------------------------

    def _pointwise(self) -> Iterator[MicroBenchmark]:
        """Yield ops of the other families, several per step, on operands of half a megabyte, which fit caches."""
        for rows, columns in ((800, 160), (160, 800)):
            size = (rows * self._scale, columns * self._scale)
            for name, make in _POINTWISE.items():
                yield MicroBenchmark(f"{name} of {size[0]} x {size[1]}", partial(self._several, make, size))

    def _several(self, make: Callable[..., Callable[[], object]], size: tuple[int, int]) -> Callable[[], object]:
        runs = [make(self._randn, *size) for _ in range(_COPIES)]
        return lambda: [run() for run in runs]


def _gelu(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x = randn(rows, columns)
    return lambda: FUNCTIONS["gelu"](x)


def _multiply(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x, y = randn(rows, columns), randn(rows, columns)
    return lambda: FUNCTIONS["multiply"](x, y)


def _layer_norm(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x, w, b = randn(rows, columns), randn(columns), randn(columns)
    return lambda: FUNCTIONS["layer_norm"](x, w, b)


def _layer_norm_grad(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x, g, w, b = randn(rows, columns), randn(rows, columns), randn(columns), randn(columns)
    _, mean, scale = FUNCTIONS["layer_norm"](x, w, b)
    return lambda: FUNCTIONS["layer_norm_grad"](g, x, w, mean, scale)


def _batch_norm(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x, w, b = randn(8, columns // 16, 2, rows), randn(columns // 16), randn(columns // 16)
    return lambda: FUNCTIONS["batch_norm"](x, w, b)


def _batch_norm_grad(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x, g = (randn(8, columns // 16, 2, rows) for _ in range(2))
    w, b = randn(columns // 16), randn(columns // 16)
    _, mean, variance = FUNCTIONS["batch_norm"](x, w, b)
    return lambda: FUNCTIONS["batch_norm_grad"](g, x, w, mean, variance)


def _dropout(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x = randn(rows, columns)
    return lambda: FUNCTIONS["dropout"](x, 1, 2, 0.1)


def _sums(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x = randn(rows, columns)
    return lambda: FUNCTIONS["sum"](x, axis=1)


def _adam(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    xs = [randn(rows, columns) for _ in range(4)]
    return lambda: FUNCTIONS["adam_step"]([*xs, 1, 1e-3, 0.9, 0.999, 1e-8, 0.0], count=1)


def _cross_entropy(randn: Any, rows: int, columns: int) -> Callable[[], object]:
    x = randn(rows, columns)
    target = (randn(rows) * 0).to(int64)
    return lambda: FUNCTIONS["cross_entropy_rows"](x, target)


_POINTWISE: dict[str, Callable[..., Callable[[], object]]] = {
    "gelu": _gelu,
    "multiply": _multiply,
    "layer norm": _layer_norm,
    "gradient of layer norm": _layer_norm_grad,
    "batch norm": _batch_norm,
    "gradient of batch norm": _batch_norm_grad,
    "dropout": _dropout,
    "sum of rows": _sums,
    "step of Adam": _adam,
    "cross entropy": _cross_entropy,
}
