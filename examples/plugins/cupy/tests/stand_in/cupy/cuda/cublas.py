"""Stand-in for cuBLAS: products of strided batches of column-major matrices. Names are CuPy's."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from cupy.cuda import runtime

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_DEFAULT_MATH, CUBLAS_GEMM_DEFAULT = 0, -1
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F = 68, 70
_TYPES: dict[int, Any] = {
    runtime.CUDA_R_32F: np.float32,
    runtime.CUDA_R_64F: np.float64,
    runtime.CUDA_R_16F: np.float16,
    runtime.CUDA_R_16BF: ml_dtypes.bfloat16,
}
_WIDE = {CUBLAS_COMPUTE_32F: np.float32, CUBLAS_COMPUTE_64F: np.float64}


class CUBLASError(RuntimeError):
    """Error of a call, with cuBLAS's status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def create() -> int:
    return 1


def setStream(handle: int, stream: int) -> None:
    assert stream


def setMathMode(handle: int, mode: int) -> None:
    """No-op: sums are in float32 or float64."""


def gemmStridedBatchedEx(
    handle: int,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: int,
    A: int,
    Atype: int,
    lda: int,
    strideA: int,
    B: int,
    Btype: int,
    ldb: int,
    strideB: int,
    beta: int,
    C: int,
    Ctype: int,
    ldc: int,
    strideC: int,
    batchCount: int,
    computeType: int,
    algo: int,
) -> None:
    wide = _WIDE[computeType]
    assert _scalar(alpha, wide) == 1
    assert _scalar(beta, wide) == 0
    a = _matrices(A, _TYPES[Atype], transa, m, k, lda, strideA, batchCount)
    b = _matrices(B, _TYPES[Btype], transb, k, n, ldb, strideB, batchCount)
    c = _matrices(C, _TYPES[Ctype], CUBLAS_OP_N, m, n, ldc, strideC, batchCount)
    np.copyto(c, np.matmul(a.astype(wide), b.astype(wide)), casting="unsafe")


def _scalar(address: int, dtype: Any) -> Any:
    return np.frombuffer((ctypes.c_uint8 * np.dtype(dtype).itemsize).from_address(address), dtype)[0]


def _matrices(
    address: int, dtype: Any, operation: int, rows: int, columns: int, leading: int, stride: int, count: int
) -> np.ndarray:
    """Return column-major matrices, transposed if `operation` says so. Raises for an invalid leading dimension."""
    if operation == CUBLAS_OP_T:
        return _matrices(address, dtype, CUBLAS_OP_N, columns, rows, leading, stride, count).swapaxes(1, 2)
    if leading < max(rows, 1):
        raise CUBLASError(7)
    size = np.dtype(dtype).itemsize
    return runtime.array(address, dtype, (count, rows, columns), (stride * size, size, leading * size))
