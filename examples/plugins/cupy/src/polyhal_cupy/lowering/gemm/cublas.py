"""Batched matrix products by cuBLAS, as steps over the argument list of a launch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from polyhal.hal.dtypes import DType
from polyhal.hal.layout import contiguous_strides
from polyhal.hal.protocol import SimpleLaunch
from polyhal_cupy import blas
from polyhal_cupy.launch import address
from polyhal_cupy.runtime import Runtime

_MAX_CALLS = 64
"""Maximum cuBLAS calls for one product; for more, a contiguous copy of the operands is faster."""

Step = Callable[..., None]
"""Function of the argument list of the whole launch."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """A batch of matrices: index of the argument, strides and offset in elements."""

    place: int
    row: int
    column: int
    batch: tuple[int, ...]
    offset: int = 0

    @property
    def transposed(self) -> Matrices:
        return replace(self, row=self.column, column=self.row)

    def from_row(self, row: int) -> Matrices:
        """Return the matrices without the rows before `row`."""
        return replace(self, offset=self.offset + row * self.row)


def contiguous_matrices(place: int, batch: tuple[int, ...], rows: int, columns: int, offset: int = 0) -> Matrices:
    """Return row-major matrices without gaps."""
    return Matrices(place, columns, 1, contiguous_strides((*batch, rows, columns))[:-2], offset)


@dataclass(frozen=True, slots=True)
class BatchedGemm:
    """out = alpha a b + beta out for a batch of matrices (m, k), (k, n), (m, n)."""

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Matrices
    b: Matrices
    out: Matrices
    dtype: DType
    out_dtype: DType
    alpha: float = 1.0
    beta: float = 0.0

    @property
    def operands(self) -> tuple[tuple[Matrices, int], ...]:
        """Return a, b and out, each with the bytes of an element."""
        return (self.a, self.dtype.itemsize), (self.b, self.dtype.itemsize), (self.out, self.out_dtype.itemsize)

    def layouts(self) -> tuple[blas.Layout, blas.Layout] | None:
        """Return the layouts of a and b, or None if cuBLAS does not support the strides or the dtype."""
        a = blas.layout(self.m, self.k, self.a.row, self.a.column)
        b = blas.layout(self.k, self.n, self.b.row, self.b.column)
        if a is None or b is None or self.out.column != 1 or not blas.supports(self.dtype):
            return None
        return a, b


def multiply(runtime: Runtime, p: BatchedGemm, name: str = "matmul") -> Step | None:
    """Return a step for the product, or None if an operand must be copied first.

    One strided batched call covers the longest axis of the batch; the step loops over the others.
    """
    layouts = p.layouts()
    if layouts is None:
        return None
    axis = max(range(len(p.batch)), key=lambda i: p.batch[i], default=None)
    others = [i for i in range(len(p.batch)) if i != axis]
    if math.prod(p.batch[i] for i in others) > _MAX_CALLS:
        return None
    count, strides = 1, (0, 0, 0)
    if axis is not None:
        count = p.batch[axis]
        strides = (p.a.batch[axis], p.b.batch[axis], p.out.batch[axis])
    leading = max(p.out.row, p.n)
    run = runtime.blas.prepare(
        blas.Gemm(p.m, p.n, p.k, count, *layouts, *strides, leading, p.dtype, p.out_dtype, p.alpha, p.beta)
    )
    offsets = [
        [
            (o.offset + sum(at * o.batch[i] for at, i in zip(index, others, strict=True))) * item
            for o, item in p.operands
        ]
        for index in itertools.product(*(range(p.batch[i]) for i in others))
    ]
    places = [o.place for o, _ in p.operands]

    def step(*args: Any) -> None:
        a, b, out = (address(args[i]) for i in places)

        def work() -> None:
            for da, db, dout in offsets:
                run(a + da, b + db, out + dout)

        runtime.call(name, work)

    return SimpleLaunch(name, step)
