// out = a x b with an epilogue, for products too small to occupy a GPU with larger tiles (sliced-K: split-K within a
// group). A group of 256 work-items computes one tile of ROWS x COLUMNS results in slices. Each slice takes a part of
// the terms of every k-tile. A work-item accumulates 4 x 4 sums, or two such blocks; the sums of all slices are reduced in
// local memory in a fixed order. While one k-tile is multiplied the next one is loaded into registers.
//
// The groups of a cluster take a part of the terms each, and finish a part of the tile from the sums of all of them. Without
// clusters in hardware (TENSOR_CORES 0) each computes the sums of all terms.

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
// Blocks of four rows of a work-item: 1 or 2.
#ifndef QUAD_ROWS
#define QUAD_ROWS 1
#endif
#define WIDTH 1
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "lib/vectors.h"
#include "lib/unrolled_terms.h"
#include "lib/clusters.h"
#include "gemm/operands.h"

#define ITEMS 256
#define SLICE (ROWS / (4 * QUAD_ROWS) * (COLUMNS / 4))
#define SLICES (ITEMS / SLICE)
#define STAGED (TERMS * (PITCH(ROWS) + PITCH(COLUMNS)))
#define SUMS (ITEMS * 16 * QUAD_ROWS)
#define ROW_STEP (ROWS / QUAD_ROWS)
// Columns of work-items that a warp covers.
#define ACROSS (COLUMNS == 32 && ROW_STEP == 32 ? 4 : COLUMNS / 4)
// Groups whose sums add up to a tile.
#define PARTS (TENSOR_CORES ? CLUSTER : 1)
#define STAGERS ITEMS
#include "gemm/k_tile.h"
// Addends of a sum: of the slices of this group, or of the groups of the cluster, which have added their slices.
#if CLUSTER > 1
#define ADDENDS PARTS
#define ADDEND(at, size, i) value_of_group(&memory[at], i)
#else
#define ADDENDS SLICES
#define ADDEND(at, size, i) memory[(i) * (size) + (at)]
#endif
#define FETCH_BOTH(from)                                                      \
    FETCH_A(a_next, a, A_K_MAJOR, ROWS, a_row, a_column, m - first_row, from) \
    FETCH_B(b_next, b, B_K_MAJOR, COLUMNS, b_column, b_row, n - first_column, from)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_sliced_k(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#if ROW_SUMS
    __global STORAGE(OUT_DTYPE) *row_sums, const ulong row_sums_offset,
#endif
    const GemmGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    UNPACK_GEOMETRY
    __local REAL memory[STAGED > SUMS ? STAGED : SUMS] __attribute__((aligned(16)));
    __local REAL *left = memory, *right = memory + TERMS * PITCH(ROWS);
    const uint me = get_local_id(0);
    const uint across = (n + COLUMNS - 1) / COLUMNS;
    const uint tile = get_group_id(0) / CLUSTER, rank = cluster_rank();
    const uint first_row = tile / across * ROWS, first_column = tile % across * COLUMNS;
    const uint part_terms = PARTS > 1 ? (k + TERMS * PARTS - 1) / (TERMS * PARTS) * TERMS : k;
    const uint start = PARTS > 1 ? rank * part_terms : 0, end = PARTS > 1 ? min(k, start + part_terms) : k;
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
    // Work-items whose numbers differ by 1 share columns, by 2 rows: NVIDIA's local memory then serves twice as many at a
    // time.
    const uint pair = me % SLICE / (2 * ACROSS);
    const uint row4 = (me % 2 + pair % (ROW_STEP / 8) * 2) * 4;
    const uint column4 = (me / 2 % ACROSS + pair / (ROW_STEP / 8) * ACROSS) * 4;

    Quad sums[4 * QUAD_ROWS];
#pragma unroll
    for (uint i = 0; i < 4 * QUAD_ROWS; i++) sums[i] = (Quad)(0);
#if ROW_SUMS
    Quad totals[QUAD_ROWS];
#pragma unroll
    for (uint i = 0; i < QUAD_ROWS; i++) totals[i] = (Quad)(0);
#endif
    A_NEXT;
    B_NEXT;
    if (start < end) {
        FETCH_BOTH(start)
    }
    for (uint from = start; from < end; from += TERMS) {
        STAGE_A(a_next, left, A_K_MAJOR, ROWS)
        STAGE_B(b_next, right, B_K_MAJOR, COLUMNS)
        barrier(CLK_LOCAL_MEM_FENCE);
        if (from + TERMS < end) {
            FETCH_BOTH(from + TERMS)
        }
        UNROLLED_TERMS for (uint p = slice; p < TERMS; p += SLICES) {
            const Quad y = *(__local const Quad *)&right[p * PITCH(COLUMNS) + column4];
#pragma unroll
            for (uint q = 0; q < QUAD_ROWS; q++) {
                const Quad x = *(__local const Quad *)&left[p * PITCH(ROWS) + q * ROW_STEP + row4];
                sums[4 * q] += x.s0 * y;
                sums[4 * q + 1] += x.s1 * y;
                sums[4 * q + 2] += x.s2 * y;
                sums[4 * q + 3] += x.s3 * y;
#if ROW_SUMS
                totals[q] += x;
#endif
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#pragma unroll
    for (uint i = 0; i < 4 * QUAD_ROWS; i++)
        *(__local Quad *)&memory[slice * ROWS * COLUMNS + (i / 4 * ROW_STEP + row4 + i % 4) * COLUMNS + column4] = sums[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    out += out_offset + (ulong)batch * m * n;
#if CLUSTER > 1
    for (uint at = me; at < ROWS * COLUMNS; at += ITEMS) {
        REAL sum = memory[at];
#pragma unroll
        for (uint s = 1; s < SLICES; s++) sum += memory[s * ROWS * COLUMNS + at];
        memory[at] = sum;
    }
    CLUSTER_EXCHANGE();
#endif
    for (uint at = rank * ITEMS + me; at < ROWS * COLUMNS; at += ITEMS * CLUSTER) {
        const uint row = first_row + at / COLUMNS, column = first_column + at % COLUMNS;
        if (row >= m || column >= n) continue;
        REAL sum = ADDEND(at, ROWS * COLUMNS, 0);
#pragma unroll
        for (uint i = 1; i < ADDENDS; i++) sum += ADDEND(at, ROWS * COLUMNS, i);
        EPILOGUE_STEPS(sum, row, column, i0, i1, i2, 1)
        STORE(OUT_DTYPE, sum, out, (ulong)row * n + column);
    }
#if ROW_SUMS
    // Of a tile in the first column; its cluster reads the sums of each group before the next ones overwrite them.
    if (first_column == 0) {
        CLUSTER_EXCHANGE();
        if (column4 == 0) {
#pragma unroll
            for (uint q = 0; q < QUAD_ROWS; q++) *(__local Quad *)&memory[slice * ROWS + q * ROW_STEP + row4] = totals[q];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#if CLUSTER > 1
        if (me < ROWS) {
            REAL total = memory[me];
#pragma unroll
            for (uint s = 1; s < SLICES; s++) total += memory[s * ROWS + me];
            memory[me] = total;
        }
        CLUSTER_EXCHANGE();
#endif
        if (rank == 0 && me < ROWS && first_row + me < m) {
            REAL total = ADDEND(me, ROWS, 0);
#pragma unroll
            for (uint i = 1; i < ADDENDS; i++) total += ADDEND(me, ROWS, i);
            STORE(OUT_DTYPE, total, row_sums, row_sums_offset + first_row + me);
        }
    }
#endif
#if PARTS > 1
    // Groups stay until the others have read their memory.
    CLUSTER_EXCHANGE();
#endif
}
