// out = a x b straight from global memory, for any strides and dtypes: for small products, and for dtypes that the tiled
// kernels do not take. A work-item computes ROWS results of one column, so that each element of b is loaded once for all of
// them.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef ROWS
#define ROWS 4
#endif
// 1: booleans, whose product is an `or` of `and`s.
#ifndef LOGICAL
#define LOGICAL 0
#endif
#define WIDTH 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "gemm/operands.h"

__kernel void gemm_strided(__global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b,
                           const ulong b_offset, EPILOGUE_PARAMETERS __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                           const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    const uint column = get_global_id(0);
    const uint first = get_global_id(1) * ROWS;
    const uint batch = get_global_id(2);
    if (column >= n || first >= m) return;
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a = MATRIX_OF_A(i0, i1, i2) + a_offset;
    b = MATRIX_OF_B(i0, i1, i2) + b_offset + column * b_column;
    out += out_offset + (ulong)batch * m * n;
    REAL sums[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; r++) sums[r] = 0;
    for (uint i = 0; i < k; i++) {
        const REAL y = (REAL)LOAD(DTYPE, b, i * b_row);
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
            const REAL x = (REAL)LOAD(DTYPE, a, min(first + r, m - 1) * a_row + i * a_column);
#if LOGICAL
            sums[r] |= x & y;
#else
            sums[r] += x * y;
#endif
        }
    }
#pragma unroll
    for (uint r = 0; r < ROWS; r++)
        if (first + r < m) {
            REAL sum = sums[r];
            EPILOGUE_STEPS(sum, first + r, column, i0, i1, i2, 1)
            STORE(OUT_DTYPE, sum, out, (ulong)(first + r) * n + column);
        }
}
