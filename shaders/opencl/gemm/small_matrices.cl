// out = a x b with an epilogue, for batches of small products. A group of ITEMS work-items computes whole products of up to
// ROWS x COLUMNS results, several at a time: each is computed by its own part of the group, where a work-item
// accumulates QUADS x QUADS blocks of 4 x 4 sums. While one k-tile of TERMS terms is multiplied, the next one is loaded into
// registers.

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
#define ROWS 16
#endif
#ifndef COLUMNS
#define COLUMNS 16
#endif
#ifndef QUADS
#define QUADS 1
#endif
#ifndef TERMS
#define TERMS 16
#endif
#ifndef ITEMS
#define ITEMS 128
#endif
// Layout of each operand: 1, K-major: the terms of a row of a, or of a column of b, are contiguous; 0, MN-major: the rows
// of a, or the columns of b, are.
#ifndef A_K_MAJOR
#define A_K_MAJOR 1
#endif
#ifndef B_K_MAJOR
#define B_K_MAJOR 0
#endif
// 1: rows of the result consist of whole, aligned vectors.
#ifndef OUT_QUADS
#define OUT_QUADS 0
#endif
#define WIDTH 4
#define ALIGNED 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/unrolled_terms.h"
#include "gemm/operands.h"

// Work-items per product, and distance of their blocks.
#define ROW_STEP (ROWS / QUADS)
#define COLUMN_STEP (COLUMNS / QUADS)
#define SHARE (ROW_STEP / 4 * (COLUMN_STEP / 4))
#define PRODUCTS (ITEMS / SHARE)
// Words of a product's k-tile. Products that a warp reads at the same time lie in different banks.
#define TILE(extent) (TERMS * PITCH(extent) + 16)
#define STAGERS SHARE
#include "gemm/k_tile.h"

#define FETCH_BOTH(from)                                             \
    FETCH_A(a_next, a, A_K_MAJOR, ROWS, a_row, a_column, a_lines, from) \
    FETCH_B(b_next, b, B_K_MAJOR, COLUMNS, b_column, b_row, b_lines, from)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_small_matrices(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint count,
    const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    __local REAL left_tiles[PRODUCTS * TILE(ROWS)] __attribute__((aligned(16)));
    __local REAL right_tiles[PRODUCTS * TILE(COLUMNS)] __attribute__((aligned(16)));
    const uint me = get_local_id(0) % SHARE, part = get_local_id(0) / SHARE;
    __local REAL *const left = left_tiles + part * TILE(ROWS), *const right = right_tiles + part * TILE(COLUMNS);
    const uint batch = get_group_id(0) * PRODUCTS + part;
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    const uint a_lines = batch < count ? m : 0, b_lines = batch < count ? n : 0;
    a = MATRIX_OF_A(i0, i1, i2) + a_offset;
    b = MATRIX_OF_B(i0, i1, i2) + b_offset;
    const uint row4 = me / (COLUMN_STEP / 4) * 4, column4 = me % (COLUMN_STEP / 4) * 4;

    Quad sums[4 * QUADS][QUADS];
#pragma unroll
    for (uint i = 0; i < 4 * QUADS; i++)
#pragma unroll
        for (uint j = 0; j < QUADS; j++) sums[i][j] = (Quad)(0);
    A_NEXT;
    B_NEXT;
    FETCH_BOTH(0)
    for (uint from = 0; from < k; from += TERMS) {
        STAGE_A(a_next, left, A_K_MAJOR, ROWS)
        STAGE_B(b_next, right, B_K_MAJOR, COLUMNS)
        barrier(CLK_LOCAL_MEM_FENCE);
        if (from + TERMS < k) {
            FETCH_BOTH(from + TERMS)
        }
        UNROLLED_TERMS for (uint p = 0; p < TERMS; p++) {
            Quad y[QUADS];
#pragma unroll
            for (uint j = 0; j < QUADS; j++)
                y[j] = *(__local const Quad *)&right[p * PITCH(COLUMNS) + j * COLUMN_STEP + column4];
#pragma unroll
            for (uint q = 0; q < QUADS; q++) {
                const Quad x = *(__local const Quad *)&left[p * PITCH(ROWS) + q * ROW_STEP + row4];
#pragma unroll
                for (uint j = 0; j < QUADS; j++) {
                    sums[4 * q][j] += x.s0 * y[j];
                    sums[4 * q + 1][j] += x.s1 * y[j];
                    sums[4 * q + 2][j] += x.s2 * y[j];
                    sums[4 * q + 3][j] += x.s3 * y[j];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out += out_offset + (ulong)batch * m * n;
#pragma unroll
    for (uint i = 0; i < 4 * QUADS; i++) {
        const uint row = i / 4 * ROW_STEP + row4 + i % 4;
        if (row >= a_lines) continue;
#pragma unroll
        for (uint j = 0; j < QUADS; j++) {
            const uint column = j * COLUMN_STEP + column4;
            if (column >= n) continue;
            const uint inside = min(4u, n - column);
            const ulong at = (ulong)row * n + column;
            Quad sum = sums[i][j];
            EPILOGUE_STEPS(sum, row, column, i0, i1, i2, inside)
#if OUT_QUADS
            STOREV(OUT_DTYPE, sum, out + at);
#else
            const REAL values[4] = {sum.s0, sum.s1, sum.s2, sum.s3};
#pragma unroll
            for (uint c = 0; c < 4; c++)
                if (c < inside) STORE(OUT_DTYPE, values[c], out, at + c);
#endif
        }
    }
}
