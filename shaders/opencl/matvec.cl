// A few vectors times a matrix: out[r, c] = sum over i of x[r, i] * y[i, c] (+ bias) for up to ROWS rows; the matrix is read once.
// Strides are free, so that a matrix times a few vectors is the same with the operands exchanged.
//
// ALONG 1: the terms of a column lie side by side in y. A group of GROUP work-items makes COLUMNS columns, each work-item
// taking every GROUP-th vector of terms. ALONG 0: the columns lie side by side. A group makes SIDE vectors of columns,
// GROUP / SIDE work-items sharing out the terms of each. The sums of a group meet in local memory, in a fixed order.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef ALONG
#define ALONG 1
#endif
#ifndef GROUP
#define GROUP 128
#endif
#ifndef SIDE
#define SIDE 32
#endif
#ifndef COLUMNS
#define COLUMNS 4
#endif
#ifndef BIAS
#define BIAS 0
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"

typedef VEC(REAL) V;
#define LANE(v, j) (((__private REAL *)&(v))[j])

inline REAL total(V v) {
    REAL sum = LANE(v, 0);
#pragma unroll
    for (uint j = 1; j < WIDTH; j++) sum += LANE(v, j);
    return sum;
}

__kernel void matvec(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *y,
                     const ulong y_offset,
#if BIAS
                     __global const STORAGE(DTYPE) *bias, const ulong bias_offset, const uint bias_row,
                     const uint bias_column,
#endif
                     __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint rows, const uint n, const uint k,
                     const long x_row, const long x_column, const long y_row, const long y_column, const long out_row,
                     const long out_column, const uint batch1, const uint batch2, const long x_batch0, const long x_batch1,
                     const long x_batch2, const long y_batch0, const long y_batch1, const long y_batch2) {
    const uint batch = get_global_id(1);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    x += x_offset + (long)i0 * x_batch0 + (long)i1 * x_batch1 + (long)i2 * x_batch2;
    y += y_offset + (long)i0 * y_batch0 + (long)i1 * y_batch1 + (long)i2 * y_batch2;
    out += out_offset + (ulong)batch * rows * n;
    const uint me = get_local_id(0);
#if ALONG
#define RESULTS COLUMNS
    // One sum per row and column; x_column and y_row are 1.
    const uint first = get_group_id(0) * COLUMNS;
    REAL sums[ROWS * COLUMNS];
    {
        V parts[ROWS][COLUMNS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint c = 0; c < COLUMNS; c++) parts[r][c] = (V)(0);
        const uint whole = k / WIDTH;
        for (uint i = me; i < whole; i += GROUP) {
            V left[ROWS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++) left[r] = LOADV(DTYPE, x + min(r, rows - 1) * x_row + i * WIDTH);
#pragma unroll
            for (uint c = 0; c < COLUMNS; c++) {
                const V right = LOADV(DTYPE, y + min(first + c, n - 1) * y_column + i * WIDTH);
#pragma unroll
                for (uint r = 0; r < ROWS; r++) parts[r][c] += left[r] * right;
            }
        }
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint c = 0; c < COLUMNS; c++) sums[r * COLUMNS + c] = total(parts[r][c]);
        if (me == 0)
            for (uint i = whole * WIDTH; i < k; i++)
                for (uint r = 0; r < ROWS; r++)
                    for (uint c = 0; c < COLUMNS; c++)
                        sums[r * COLUMNS + c] +=
                            LOAD(DTYPE, x, min(r, rows - 1) * x_row + i) * LOAD(DTYPE, y, min(first + c, n - 1) * y_column + i);
    }
    const uint slice = me;
#define SLICES GROUP
#else
#define RESULTS WIDTH
    // One sum per row and lane; y_column is 1.
    const uint first = (get_group_id(0) * SIDE + me % SIDE) * WIDTH;
    const uint slice = me / SIDE;
#define SLICES (GROUP / SIDE)
    REAL sums[ROWS * WIDTH];
    {
        V parts[ROWS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++) parts[r] = (V)(0);
        if (first + WIDTH <= n) {
            for (uint i = slice; i < k; i += SLICES) {
                const V right = LOADV(DTYPE, y + i * y_row + first);
#pragma unroll
                for (uint r = 0; r < ROWS; r++) parts[r] += (V)(LOAD(DTYPE, x, min(r, rows - 1) * x_row + i * x_column)) * right;
            }
        } else if (first < n) {
            for (uint i = slice; i < k; i += SLICES)
                for (uint j = 0; j < n - first; j++) {
                    const REAL right = LOAD(DTYPE, y, i * y_row + first + j);
#pragma unroll
                    for (uint r = 0; r < ROWS; r++)
                        LANE(parts[r], j) += LOAD(DTYPE, x, min(r, rows - 1) * x_row + i * x_column) * right;
                }
        }
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint j = 0; j < WIDTH; j++) sums[r * WIDTH + j] = LANE(parts[r], j);
    }
#endif
#if GROUP > 1
    __local REAL shared[GROUP];
#endif
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
#pragma unroll
        for (uint c = 0; c < RESULTS; c++) {
            REAL sum = sums[r * RESULTS + c];
#if GROUP > 1
            barrier(CLK_LOCAL_MEM_FENCE);
            shared[me] = sum;
            for (uint half_size = SLICES / 2; half_size > 0; half_size /= 2) {
                barrier(CLK_LOCAL_MEM_FENCE);
                if (slice < half_size) shared[me] += shared[me + half_size * (GROUP / SLICES)];
            }
            sum = shared[me];
#endif
            if (slice == 0 && r < rows && first + c < n) {
#if BIAS
                sum += LOAD(DTYPE, bias, bias_offset + r * bias_row + (first + c) * bias_column);
#endif
                STORE(OUT_DTYPE, sum, out, r * out_row + (first + c) * out_column);
            }
        }
    }
}
