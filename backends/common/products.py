"""Matrix products as kernels see them, whatever the shader language: which matrices, how they lie, and where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from polyhal.backends.common.expressions import Class, register_class
from polyhal.backends.common.lowering import LoweringFunction
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, broadcast_strides, collapse
from polyhal.hal.protocol import Declined, InputSpec, Launch

BATCH_AXES = 3
Triple = tuple[int, int, int]

ELEMENT: dict[Class, DType] = {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "int": dtypes.int32,
    "uint": dtypes.uint32,
    "long": dtypes.int64,
    "ulong": dtypes.uint64,
    "bool": dtypes.uint32,
}
"""What holds the sums of a register class in memory."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A batch of matrices in argument `place` of a launch: the distance between rows, columns and neighbours in the batch."""

    place: int
    row: int
    column: int
    batch: Triple
    aligned: bool = False

    def turned(self) -> Matrix:
        """The transposed matrices."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` matrices (m, k) x (k, n); the results of a batch lie `m * n` apart.

    `bias` and `temporary`, the first workspace, are positions in the argument list of the launch. Result (i, j) gets
    element `i * bias_row + j * bias_column` of the bias.
    """

    batch: Triple
    m: int
    n: int
    k: int
    left: Matrix
    right: Matrix
    out: Matrix
    dtype: DType
    out_dtype: DType
    bias: int | None
    temporary: int
    bias_row: int = 0
    bias_column: int = 1

    @property
    def count(self) -> int:
        return math.prod(self.batch)

    @property
    def kind(self) -> Class:
        """The class of the registers that hold the sums."""
        return register_class(self.out_dtype)

    @property
    def element(self) -> DType:
        """The type of sums in memory."""
        return ELEMENT[self.kind]

    def turned(self) -> Product:
        """The same product with its operands exchanged: the transpose of the result from the transposed operands."""
        return replace(
            self, m=self.n, n=self.m, left=self.right.turned(), right=self.left.turned(), out=self.out.turned(),
            bias_row=self.bias_column, bias_column=self.bias_row,
        )  # fmt: skip


def describe(x: Spec, y: Spec, out: Spec, places: tuple[int, int, int | None, int, int]) -> Product | Declined:
    """The product of `x` (..., M, K) and `y` (..., K, N) with batches broadcast.

    `places` are the positions of x, y, the bias, the output and the first workspace. Batch axes join the rows of `x`
    where `y` is the same for all of them and the strides permit.
    """
    (m, k), n = x.shape[-2:], y.shape[-1]
    batch = out.shape[: out.ndim - 2]
    a = broadcast_strides(x.shape[:-2], x.strides[:-2], batch)
    b = broadcast_strides(y.shape[:-2], y.strides[:-2], batch)
    row = x.strides[-2]
    if not any(s for s, length in zip(b, batch, strict=True) if length > 1):
        lengths, (steps, _) = collapse((*batch, m), ((*a, row), (0,) * (len(batch) + 1)))
        batch, m = lengths[:-1], lengths[-1]
        a, row, b = steps[:-1], steps[-1], (0,) * len(batch)
    else:
        batch, (a, b) = collapse(batch, (a, b))
    if len(batch) > BATCH_AXES:
        return Declined(f"the batch has {len(batch)} axes that cannot be merged; the kernels take {BATCH_AXES}")
    if max(m, n, k) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    left, right, bias, result, temporary = places
    lengths = padded(batch, 1)
    return Product(
        lengths, m, n, k,
        Matrix(left, row, x.strides[-1], padded(a, 0), x.aligned),
        Matrix(right, y.strides[-2], y.strides[-1], padded(b, 0), y.aligned),
        Matrix(result, n, 1, (lengths[1] * lengths[2] * m * n, lengths[2] * m * n, m * n), out.aligned),
        x.dtype, out.dtype, bias, temporary,
    )  # fmt: skip


def padded(values: tuple[int, ...], fill: int) -> Triple:
    """The lengths or strides of a batch on exactly BATCH_AXES axes."""
    first, second, third = (fill,) * (BATCH_AXES - len(values)) + values
    return first, second, third


Builder = Callable[[Any, Product], Launch | Declined]


def batched(build: Builder, runtime: Any, a: Spec, b: Spec, out: Spec) -> Launch:
    """A launch (a, b, out) for shapes (B, M, K), (B, K, N), (B, M, N), as the contract's core method needs it."""
    p = describe(a, b, out, (0, 1, None, 2, 3))
    assert isinstance(p, Product)
    launch = build(runtime, p)
    assert not isinstance(launch, Declined)
    return launch


def lowerings(build: Builder) -> dict[str, LoweringFunction]:
    """The lowering functions of all products on one builder."""

    def matmul(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        x, y = inputs
        if not isinstance(x, Spec) or not isinstance(y, Spec):
            return Declined("an operand is a number")
        if x.dtype is not y.dtype:
            return Declined(f"operands of {x.dtype.name} and {y.dtype.name}")
        p = describe(x, y, outputs[0], (0, 1, None, 2, 3))
        return p if isinstance(p, Declined) else build(runtime, p)

    def linear(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        x, weight, bias = inputs
        (out,) = outputs
        if not isinstance(x, Spec) or not isinstance(weight, Spec):
            return Declined("an operand is a number")
        if x.dtype is not weight.dtype or (bias is not None and bias.dtype is not x.dtype):
            return Declined("operands of different dtypes")
        if isinstance(bias, Spec) and not bias.is_contiguous:
            return Declined("the bias is not contiguous")
        turned = Spec(weight.dtype, weight.shape[::-1], weight.strides[::-1], weight.aligned)
        p = describe(_rows(x), turned, _rows(out), (0, 1, None if bias is None else 2, 3, 4))
        return p if isinstance(p, Declined) else build(runtime, p)

    return {"matmul": matmul, "linear": linear}


def _rows(spec: Spec) -> Spec:
    """A single vector counts as one row."""
    return spec if spec.ndim > 1 else Spec(spec.dtype, (1, *spec.shape), (0, *spec.strides), spec.aligned)
