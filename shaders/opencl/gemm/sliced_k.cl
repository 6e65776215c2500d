// out = a x b with an epilogue, for products too small to occupy a GPU with larger tiles (sliced-K: split-K within a
// group). A group of 256 work-items computes one tile of ROWS x COLUMNS results in slices. Each slice takes a part of
// the terms of every k-tile. A work-item accumulates 4 x 4 sums; the sums of all slices are reduced in local memory in
// a fixed order. While one k-tile is multiplied the next one is loaded into registers.

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
#define ROWS 32
#endif
#ifndef COLUMNS
#define COLUMNS 32
#endif
// Layout of each operand: 1, K-major: the terms of a row of a, or of a column of b, are contiguous; 0, MN-major: the rows
// of a, or the columns of b, are.
#ifndef A_K_MAJOR
#define A_K_MAJOR 1
#endif
#ifndef B_K_MAJOR
#define B_K_MAJOR 0
#endif
// 0: there is one matrix, so its index needs no divisions.
#ifndef BATCHED
#define BATCHED 1
#endif
// 1: also compute the row sums of a.
#ifndef ROW_SUMS
#define ROW_SUMS 0
#endif
// Terms of a k-tile, a multiple of 32.
#ifndef TERMS
#define TERMS 64
#endif
#define WIDTH 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/unrolled_terms.h"
#include "gemm/operands.h"

#define ITEMS 256
#define SLICE (ROWS / 4 * (COLUMNS / 4))
#define SLICES (ITEMS / SLICE)
#define STAGED (TERMS * (PITCH(ROWS) + PITCH(COLUMNS)))
#define SUMS (ITEMS * 16)
#define STAGERS ITEMS
#include "gemm/k_tile.h"
typedef CONCAT(REAL, 4) Quad;

#define FETCH_BOTH(from)                                                    \
    FETCH(a_next, a, A_K_MAJOR, ROWS, a_row, a_column, m - first_row, from) \
    FETCH(b_next, b, B_K_MAJOR, COLUMNS, b_column, b_row, n - first_column, from)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_sliced_k(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#if ROW_SUMS
    __global STORAGE(OUT_DTYPE) *row_sums, const ulong row_sums_offset,
#endif
    const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    __local REAL memory[STAGED > SUMS ? STAGED : SUMS] __attribute__((aligned(16)));
    __local REAL *left = memory, *right = memory + TERMS * PITCH(ROWS);
    const uint me = get_local_id(0);
    const uint across = (n + COLUMNS - 1) / COLUMNS;
    const uint first_row = get_group_id(0) / across * ROWS, first_column = get_group_id(0) % across * COLUMNS;
#if BATCHED
    const uint batch = get_group_id(1);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a = MATRIX_OF_A(i0, i1, i2);
    b = MATRIX_OF_B(i0, i1, i2);
#else
    const uint batch = 0, i0 = 0, i1 = 0, i2 = 0;
#endif
    a += a_offset + first_row * a_row;
    b += b_offset + first_column * b_column;
    const uint slice = me / SLICE;
    const uint row4 = me % SLICE / (COLUMNS / 4) * 4, column4 = me % (COLUMNS / 4) * 4;

    Quad sums[4];
#pragma unroll
    for (uint i = 0; i < 4; i++) sums[i] = (Quad)(0);
#if ROW_SUMS
    Quad totals = (Quad)(0);
#endif
    REAL a_next[LOADS(ROWS)], b_next[LOADS(COLUMNS)];
    FETCH_BOTH(0)
    for (uint from = 0; from < k; from += TERMS) {
        STAGE(a_next, left, A_K_MAJOR, ROWS)
        STAGE(b_next, right, B_K_MAJOR, COLUMNS)
        barrier(CLK_LOCAL_MEM_FENCE);
        if (from + TERMS < k) {
            FETCH_BOTH(from + TERMS)
        }
        UNROLLED_TERMS for (uint p = slice; p < TERMS; p += SLICES) {
            const Quad x = *(__local const Quad *)&left[p * PITCH(ROWS) + row4];
            const Quad y = *(__local const Quad *)&right[p * PITCH(COLUMNS) + column4];
            sums[0] += x.s0 * y;
            sums[1] += x.s1 * y;
            sums[2] += x.s2 * y;
            sums[3] += x.s3 * y;
#if ROW_SUMS
            totals += x;
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#pragma unroll
    for (uint i = 0; i < 4; i++)
        *(__local Quad *)&memory[slice * ROWS * COLUMNS + (row4 + i) * COLUMNS + column4] = sums[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    out += out_offset + (ulong)batch * m * n;
    for (uint at = me; at < ROWS * COLUMNS; at += ITEMS) {
        const uint row = first_row + at / COLUMNS, column = first_column + at % COLUMNS;
        if (row >= m || column >= n) continue;
        REAL sum = memory[at];
#pragma unroll
        for (uint s = 1; s < SLICES; s++) sum += memory[s * ROWS * COLUMNS + at];
        EPILOGUE_STEPS(sum, row, column, i0, i1, i2, 1)
        STORE(OUT_DTYPE, sum, out, (ulong)row * n + column);
    }
#if ROW_SUMS
    if (first_column) return;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (column4 == 0) *(__local Quad *)&memory[slice * ROWS + row4] = totals;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me >= ROWS || first_row + me >= m) return;
    REAL total = memory[me];
#pragma unroll
    for (uint s = 1; s < SLICES; s++) total += memory[s * ROWS + me];
    STORE(OUT_DTYPE, total, row_sums, row_sums_offset + first_row + me);
#endif
}
