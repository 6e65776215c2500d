"""Batches of matrix products by cuBLAS, as steps over the argument list of a launch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import contiguous_strides
from polyhal_cupy import blas
from polyhal_cupy.launch import StructLaunch, address
from polyhal_cupy.runtime import Runtime

_CALLS = 64
"""Calls of cuBLAS for one product above which a contiguous copy of the operands costs less."""
_AXES = 3
_BLOCK = 128
_ENTRY = 8
_MOST_OPERANDS = 120
"""What fits in the parameters of one kernel, at 32 bytes each."""

Step = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Matrices:
    """An operand: its place in the argument list, its strides and where its first element lies, in elements."""

    place: int
    row: int
    column: int
    batch: tuple[int, ...]
    offset: int = 0

    @property
    def transposed(self) -> Matrices:
        return replace(self, row=self.column, column=self.row)

    def from_row(self, row: int) -> Matrices:
        """The same matrices without the rows before `row`."""
        return replace(self, offset=self.offset + row * self.row)


def contiguous_matrices(place: int, batch: tuple[int, ...], rows: int, columns: int, offset: int = 0) -> Matrices:
    """Row-major matrices without gaps."""
    return Matrices(place, columns, 1, contiguous_strides((*batch, rows, columns))[:-2], offset)


@dataclass(frozen=True, slots=True)
class Product:
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
        """a, b and out, each with the bytes of an element."""
        return (self.a, self.dtype.itemsize), (self.b, self.dtype.itemsize), (self.out, self.out_dtype.itemsize)


class AddressTable:
    """The addresses of the matrices of several products over one batch, in a workspace, for cuBLAS to read.

    A batch along two axes, such as images and heads, is one call over such a table, where a call with strides takes one axis.
    """

    def __init__(self, runtime: Runtime, place: int, batch: tuple[int, ...]) -> None:
        """`place` is that of the workspace."""
        self._runtime = runtime
        self._place = place
        self._batch = batch
        self._operands: list[tuple[Matrices, int]] = []

    @property
    def nbytes(self) -> int:
        """What the workspace has to hold; 0 where no product wants it."""
        return len(self._operands) * math.prod(self._batch) * _ENTRY

    def add(self, p: Product, a: blas.Layout, b: blas.Layout, name: str) -> Step | None:
        """A step for the product; None where it needs no table, or cuBLAS has no such call for its dtype."""
        count = math.prod(self._batch)
        useful = p.batch == self._batch and len(p.batch) <= _AXES and sum(n > 1 for n in p.batch) > 1
        if not useful or len(self._operands) + 3 > _MOST_OPERANDS:
            return None
        run = self._runtime.blas.prepare_scattered(
            blas.Gemm(p.m, p.n, p.k, count, a, b, 0, 0, 0, max(p.out.row, p.n), p.dtype, p.out_dtype, p.alpha, p.beta)
        )
        if run is None:
            return None
        first, span = self.nbytes, count * _ENTRY
        self._operands += p.operands

        def step(*args: Any) -> None:
            at = args[self._place] + first
            self._runtime.call(name, lambda: run(at, at + span, at + 2 * span))

        return step

    def fill(self) -> list[Step]:
        """What has to come before the steps: the launch that fills the table, if any product wants it."""
        if not self._operands:
            return []
        count, fill = math.prod(self._batch), (0,) * (_AXES - len(self._batch))
        lengths = [*(1 for _ in fill), *self._batch]
        operands = len(self._operands)
        blank = np.zeros((), np.dtype([("bases", np.uint64, operands), ("steps", np.int64, (operands, _AXES))]))
        blank["steps"] = [[s * item for s in (*fill, *o.batch)] for o, item in self._operands]

        def make(*args: Any) -> list[Any]:
            given = blank.copy()
            given["bases"] = [address(args[o.place]) + o.offset * item for o, item in self._operands]
            return [given, args[self._place], np.uint32(count), np.uint32(lengths[1]), np.uint32(lengths[2])]

        function = self._runtime.function("pointers", {"OPERANDS": operands, "BLOCK": _BLOCK})
        blocks = ceil_div(operands * count, _BLOCK)
        return [StructLaunch(self._runtime, "pointers", function, make, blocks, _BLOCK)]


def multiply(runtime: Runtime, p: Product, name: str = "matmul", table: AddressTable | None = None) -> Step | None:
    """The product over the argument list that it shares with other steps; None where an operand has to be copied first."""
    a = blas.layout(p.m, p.k, p.a.row, p.a.column)
    b = blas.layout(p.k, p.n, p.b.row, p.b.column)
    if a is None or b is None or p.out.column != 1 or not blas.supports(p.dtype):
        return None
    scattered = table.add(p, a, b, name) if table is not None else None
    return scattered or _strided(runtime, p, a, b, name)


def _strided(runtime: Runtime, p: Product, a: blas.Layout, b: blas.Layout, name: str) -> Step | None:
    """One call covers the longest axis of the batch; the others are walked here."""
    axis = max(range(len(p.batch)), key=lambda i: p.batch[i], default=None)
    others = [i for i in range(len(p.batch)) if i != axis]
    if math.prod(p.batch[i] for i in others) > _CALLS:
        return None
    count, strides = 1, (0, 0, 0)
    if axis is not None:
        count = p.batch[axis]
        strides = (p.a.batch[axis], p.b.batch[axis], p.out.batch[axis])
    run = runtime.blas.prepare(
        blas.Gemm(p.m, p.n, p.k, count, a, b, *strides, max(p.out.row, p.n), p.dtype, p.out_dtype, p.alpha, p.beta)
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
        x, y, out = (address(args[i]) for i in places)

        def work() -> None:
            for dx, dy, dout in offsets:
                run(x + dx, y + dy, out + dout)

        runtime.call(name, work)

    return step
