"""Matrix products by cuBLAS, of strided matrices and in every float dtype.

cuBLAS is column-major. A row-major matrix is the transpose of a column-major one, so out = a b is computed as out' = b' a'.
Transposed views and slices of rows are not copied: a matrix only needs a stride of 1 along one of its axes.
"""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from cupy.cuda import cublas
from cupy.cuda import runtime as cuda

from polyhal.backends.common.problems import gemm
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch
from polyhal_cupy.stream import Stream

_TYPES: dict[DType, int] = {
    dtypes.float32: cuda.CUDA_R_32F,
    dtypes.float64: cuda.CUDA_R_64F,
    dtypes.float16: cuda.CUDA_R_16F,
    dtypes.bfloat16: cuda.CUDA_R_16BF,
}
_TF32 = 3
"""CUBLAS_TF32_TENSOR_OP_MATH"""
_EXACT_REDUCTION = 16
"""CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: partial sums of half-precision products stay in float32."""
_LARGEST = 2**31 - 1
_MAX_CALLS = 64
"""Maximum cuBLAS calls for one product; for more, a contiguous copy of the operands is faster."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a row-major matrix as cuBLAS arguments: operation (transposed or not) and leading dimension."""

    operation: int
    leading: int


def layout(rows: int, columns: int, row_stride: int, column_stride: int) -> Layout | None:
    """Return the layout of a matrix of this shape and strides, or None if neither stride is 1."""
    if (column_stride == 1 or columns == 1) and (row_stride >= columns or rows == 1):
        return _checked(cublas.CUBLAS_OP_N, max(row_stride if rows > 1 else columns, columns, 1))
    if (row_stride == 1 or rows == 1) and (column_stride >= rows or columns == 1):
        return _checked(cublas.CUBLAS_OP_T, max(column_stride if columns > 1 else rows, rows, 1))
    return None


def _checked(operation: int, leading: int) -> Layout | None:
    return Layout(operation, leading) if leading <= _LARGEST else None


class Blas:
    """A cuBLAS handle on one stream. Its settings never change, so threads may share it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        with stream.entered("opening cuBLAS"):
            self._handle = cublas.create()
            cublas.setStream(self._handle, stream.stream.ptr)
            # CuPy's setting. By default, products of float32 do not use TensorFloat-32.
            mode = _TF32 if os.environ.get("CUPY_TF32", "0") == "1" else cublas.CUBLAS_DEFAULT_MATH
            cublas.setMathMode(self._handle, mode | _EXACT_REDUCTION)

    def build(self, p: Product) -> Launch | Declined:
        """Return the launch of a product without bias; declines operands that must be copied first.

        One strided batched call covers the longest axis of the batch; the launch loops over the others.
        """
        if p.dtype not in _TYPES:
            return Declined(f"cuBLAS does not multiply {p.dtype.name}")
        if p.out_dtype is not p.dtype:
            return Declined(f"a product of {p.dtype.name} with a result of {p.out_dtype.name}")
        if p.bias is not None:
            return Declined("cuBLAS adds no bias")
        a, b = layout(p.m, p.k, p.left.row, p.left.column), layout(p.k, p.n, p.right.row, p.right.column)
        if a is None or b is None:
            return Declined("neither stride of an operand's matrices is 1")
        axis = max(range(len(p.batch)), key=p.batch.__getitem__)
        rest = [range(1 if i == axis else length) for i, length in enumerate(p.batch)]
        if math.prod(map(len, rest)) > _MAX_CALLS:
            return Declined(f"{p.batch} products take more than {_MAX_CALLS} calls of cuBLAS")
        operands = (p.left, p.right, p.out)
        offsets = [[_offset(m, index, p.dtype) for m in operands] for index in itertools.product(*rest)]
        call = self._call(p, a, b, axis)

        def run(*args: Ref) -> None:
            addresses = [args[m.place].handle + args[m.place].offset * p.dtype.itemsize for m in operands]
            with self._stream.entered(f"multiplying {p.count} x {p.m} x {p.k} x {p.n} matrices"):
                for moved in offsets:
                    call(*(start + offset for start, offset in zip(addresses, moved, strict=True)))

        return SimpleLaunch("cublas", run)

    def _call(self, p: Product, a: Layout, b: Layout, axis: int) -> Any:
        """Return a function of three addresses (a, b, out) that enqueues the products along an axis of the batch.

        The accumulator is float64 for products of float64, else float32.
        """
        wide, kind = p.dtype is dtypes.float64, _TYPES[p.dtype]
        factors = np.array([1, 0], np.float64 if wide else np.float32)
        compute = cublas.CUBLAS_COMPUTE_64F if wide else cublas.CUBLAS_COMPUTE_32F

        def call(left: int, right: int, out: int) -> None:
            one, zero = factors.ctypes.data, factors.ctypes.data + factors.itemsize
            cublas.gemmStridedBatchedEx(
                self._handle,
                b.operation,
                a.operation,
                p.n,
                p.m,
                p.k,
                one,
                right,
                kind,
                b.leading,
                p.right.batch[axis],
                left,
                kind,
                a.leading,
                p.left.batch[axis],
                zero,
                out,
                kind,
                p.out.row,
                p.out.batch[axis],
                p.batch[axis],
                compute,
                cublas.CUBLAS_GEMM_DEFAULT,
            )

        return call


def _offset(m: Matrix, index: tuple[int, ...], dtype: DType) -> int:
    """Return the bytes from the first matrix of a batch to the matrix at `index`."""
    return sum(at * stride for at, stride in zip(index, m.batch, strict=True)) * dtype.itemsize


LOWERINGS = gemm.lowerings(Blas.build)
"""Lowering functions of `matmul` and `linear`."""
