"""cuBLAS: matrix products in half and full precision.

cuBLAS is column-major. A row-major matrix is the transpose of a column-major one, so out = a b is computed as out' = b' a'.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from cupy.cuda import cublas
from cupy.cuda import runtime as cuda

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

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


def supports(dtype: DType) -> bool:
    """Return whether cuBLAS multiplies matrices of `dtype`."""
    return dtype in _TYPES


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


@dataclass(frozen=True, slots=True)
class Gemm:
    """out = alpha a b + beta out for `count` matrices (m, k), (k, n), (m, n).

    Strides between matrices are in elements; `out_leading` is the stride of rows of `out`. The accumulator is float64 for
    products of float64, else float32.
    """

    m: int
    n: int
    k: int
    count: int
    a: Layout
    b: Layout
    a_stride: int
    b_stride: int
    out_stride: int
    out_leading: int
    dtype: DType
    out_dtype: DType
    alpha: float = 1.0
    beta: float = 0.0


class Blas:
    """A cuBLAS handle on one stream. Its settings never change, so threads may share it."""

    def __init__(self, stream: Any) -> None:
        self._handle = cublas.create()
        cublas.setStream(self._handle, stream.ptr)
        # CuPy's setting. By default, products of float32 do not use TensorFloat-32.
        mode = _TF32 if os.environ.get("CUPY_TF32", "0") == "1" else cublas.CUBLAS_DEFAULT_MATH
        cublas.setMathMode(self._handle, mode | _EXACT_REDUCTION)

    def prepare(self, g: Gemm) -> Any:
        """Return a function of three addresses (a, b, out) that enqueues the product."""
        factors, alpha, beta = _factors(g)
        compute = cublas.CUBLAS_COMPUTE_64F if g.dtype is dtypes.float64 else cublas.CUBLAS_COMPUTE_32F
        kind, out_kind = _TYPES[g.dtype], _TYPES[g.out_dtype]
        handle, default = self._handle, cublas.CUBLAS_GEMM_DEFAULT
        (op_a, lead_a), (op_b, lead_b) = (g.a.operation, g.a.leading), (g.b.operation, g.b.leading)

        if g.count == 1:

            def single_product(a: int, b: int, out: int, keep: np.ndarray = factors) -> None:
                cublas.gemmEx(
                    handle, op_b, op_a, g.n, g.m, g.k, alpha, b, kind, lead_b, a, kind, lead_a, beta, out, out_kind,
                    g.out_leading, compute, default,
                )  # fmt: skip

            return single_product

        def batched_product(a: int, b: int, out: int, keep: np.ndarray = factors) -> None:
            cublas.gemmStridedBatchedEx(
                handle, op_b, op_a, g.n, g.m, g.k, alpha, b, kind, lead_b, g.b_stride, a, kind, lead_a, g.a_stride, beta,
                out, out_kind, g.out_leading, g.out_stride, g.count, compute, default,
            )  # fmt: skip

        return batched_product

    def prepare_pointer_arrays(self, g: Gemm) -> Any | None:
        """Return a function of three pointer arrays of `count` addresses; None if cuBLAS lacks the call for the dtype."""
        if g.dtype is not g.out_dtype or g.dtype not in (dtypes.float32, dtypes.float64):
            return None
        multiply = cublas.sgemmBatched if g.dtype is dtypes.float32 else cublas.dgemmBatched
        factors, alpha, beta = _factors(g)
        handle = self._handle

        def pointer_array_product(a: int, b: int, out: int, keep: np.ndarray = factors) -> None:
            multiply(
                handle, g.b.operation, g.a.operation, g.n, g.m, g.k, alpha, b, g.b.leading, a, g.a.leading, beta, out,
                g.out_leading, g.count,
            )  # fmt: skip

        return pointer_array_product


def _factors(g: Gemm) -> tuple[np.ndarray, int, int]:
    """Return alpha and beta as an array that must outlive the call, and the addresses of both."""
    factors = np.array([g.alpha, g.beta], np.float64 if g.dtype is dtypes.float64 else np.float32)
    return factors, factors.ctypes.data, factors.ctypes.data + factors.itemsize
