// out = a x b with an epilogue, on matrix units (lib/matrix_unit.h): float16 and bfloat16 with
// float32 sums. A group computes TILE_ROWS x TILE_COLUMNS results, each of its waves WAVE_ROWS x WAVE_COLUMNS of them in blocks of
// the unit, from k-tiles of DEPTH terms in local memory. While one k-tile is multiplied the next one is in flight, in registers.
//
// In both k-tiles terms are contiguous, as matrix units require; an MN-major operand is transposed while it is stored.
//
// With SPLIT_K groups divide the terms of a tile and write partial sums to `partial` (splits, batch, m, n), which
// gemm/split_k_reduce.cl reduces in a fixed order.

#ifndef DTYPE
#define DTYPE float16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 64
#endif
#ifndef TILE_COLUMNS
#define TILE_COLUMNS 64
#endif
#ifndef WAVE_ROWS
#define WAVE_ROWS 32
#endif
#ifndef WAVE_COLUMNS
#define WAVE_COLUMNS 32
#endif
#ifndef DEPTH
#define DEPTH 32
#endif
// Layout of each operand: 1, K-major: the terms of a row of a, or of a column of b, are contiguous; 0, MN-major: the rows
// of a, or the columns of b, are. A_CHUNK and B_CHUNK are the neighbours that are loaded at once, to whose size rows are aligned.
#ifndef A_K_MAJOR
#define A_K_MAJOR 1
#endif
#ifndef B_K_MAJOR
#define B_K_MAJOR 0
#endif
#ifndef A_CHUNK
#define A_CHUNK 1
#endif
#ifndef B_CHUNK
#define B_CHUNK 1
#endif
#ifndef SPLIT_K
#define SPLIT_K 0
#endif
#define WIDTH 1
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/matrix_unit.h"
#include "gemm/operands.h"
#include "gemm/tile_swizzle.h"

#define ITEMS (LANES * (TILE_ROWS / WAVE_ROWS) * (TILE_COLUMNS / WAVE_COLUMNS))
#define BLOCKS_DOWN (WAVE_ROWS / UNIT_ROWS)
#define BLOCKS_ACROSS (WAVE_COLUMNS / UNIT_COLUMNS)
// Lines are whole chunks of 16 bytes, and neighbouring ones begin in different banks.
#define PITCH (DEPTH + 8)

// Unrolled, dot products need twice the registers, and sums of UNIT_XMX spill to memory.
#if UNIT == UNIT_WMMA || UNIT == UNIT_WMMA_RDNA4 || UNIT == UNIT_MFMA
#define UNROLL_STEPS _Pragma("unroll")
#else
#define UNROLL_STEPS _Pragma("unroll 1")
#endif

#define CHUNK_1 ushort
#define CHUNK_2 ushort2
#define CHUNK_4 ushort4
#define CHUNK_8 ushort8
#define CHUNK(n) CONCAT(CHUNK_, n)
#define LOADS(extent, chunk) ((extent) * DEPTH / (chunk) / ITEMS)
// Row or column, and term, of the first number of chunk e.
#define PLACE(k_major, extent, chunk, e) ((k_major) ? (e) / (DEPTH / (chunk)) : (e) % ((extent) / (chunk)) * (chunk))
#define TERM(k_major, extent, chunk, e) ((k_major) ? (e) % (DEPTH / (chunk)) * (chunk) : (e) / ((extent) / (chunk)))

// Loads chunk e of the k-tile that begins at term `from` into `number`; elements outside the matrix are 0.
#define LOAD_CHUNK(number, e, x, mn_stride, k_stride, first, mn, k_major, extent, chunk, from)                        \
    {                                                                                                                 \
        const uint at = (first) + PLACE(k_major, extent, chunk, e), term = (from) + TERM(k_major, extent, chunk, e);  \
        number = (CHUNK(chunk))(0);                                                                                   \
        if (at < (mn) && term < end)                                                                                  \
            number = *(__global const CHUNK(chunk) *)(x + ((long)at * (mn_stride) + (long)term * (k_stride)));        \
    }
#define STORE_CHUNK(number, e, tile, k_major, extent, chunk)                                                          \
    {                                                                                                                 \
        __local ushort *to = tile + PLACE(k_major, extent, chunk, e) * PITCH + TERM(k_major, extent, chunk, e);       \
        if (k_major) {                                                                                                \
            *(__local CHUNK(chunk) *)to = number;                                                                     \
        } else {                                                                                                      \
            const ushort *numbers = (const ushort *)&number;                                                          \
            _Pragma("unroll") for (uint c = 0; c < (chunk); c++) to[c * PITCH] = numbers[c];                          \
        }                                                                                                             \
    }

// Large chunks of the next k-tile are prefetched to registers. Small chunks are numerous, each needs an address, and
// they would leave no registers for sums: they are copied when their k-tile is due.
#define IS_FETCHED(chunk) ((chunk) >= 4)
#define FETCH(next, x, mn_stride, k_stride, first, mn, k_major, extent, chunk, from)                                  \
    if (IS_FETCHED(chunk)) {                                                                                          \
        _Pragma("unroll") for (uint i = 0; i < LOADS(extent, chunk); i++)                                             \
            LOAD_CHUNK(next[i], me + i * ITEMS, x, mn_stride, k_stride, first, mn, k_major, extent, chunk, from)      \
    }
#define STAGE(tile, next, x, mn_stride, k_stride, first, mn, k_major, extent, chunk, from)                            \
    if (IS_FETCHED(chunk)) {                                                                                          \
        _Pragma("unroll") for (uint i = 0; i < LOADS(extent, chunk); i++)                                             \
            STORE_CHUNK(next[i], me + i * ITEMS, tile, k_major, extent, chunk)                                        \
    } else {                                                                                                          \
        _Pragma("unroll 2") for (uint e = me; e < (extent) * DEPTH / (chunk); e += ITEMS) {                           \
            CHUNK(chunk) number;                                                                                      \
            LOAD_CHUNK(number, e, x, mn_stride, k_stride, first, mn, k_major, extent, chunk, from)                    \
            STORE_CHUNK(number, e, tile, k_major, extent, chunk)                                                      \
        }                                                                                                             \
    }

__kernel NO_AUTOVEC UNIT_ATTRIBUTE __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_matrix_unit(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
#if SPLIT_K
    __global float *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint split_terms, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    __local ushort left[TILE_ROWS * PITCH] __attribute__((aligned(16)));
    __local ushort right[TILE_COLUMNS * PITCH] __attribute__((aligned(16)));
    const uint me = get_local_id(0), wave = me / LANES;
    const uint wave_row = wave / (TILE_COLUMNS / WAVE_COLUMNS) * WAVE_ROWS;
    const uint wave_column = wave % (TILE_COLUMNS / WAVE_COLUMNS) * WAVE_COLUMNS;
    const uint2 tile =
        swizzled_tile(get_group_id(0), (m + TILE_ROWS - 1) / TILE_ROWS, (n + TILE_COLUMNS - 1) / TILE_COLUMNS);
    const uint first_row = tile.x * TILE_ROWS, first_column = tile.y * TILE_COLUMNS;
    const uint batch = get_group_id(2);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a = MATRIX_OF_A(i0, i1, i2) + a_offset;
    b = MATRIX_OF_B(i0, i1, i2) + b_offset;
    const uint start = get_group_id(1) * split_terms, end = min(start + split_terms, k);

    Sums sums[BLOCKS_DOWN][BLOCKS_ACROSS];
#pragma unroll
    for (uint i = 0; i < BLOCKS_DOWN; i++)
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++)
#pragma unroll
            for (uint s = 0; s < SUMS; s++) ((float *)&sums[i][j])[s] = 0;

#define OPERAND_A a, a_row, a_column, first_row, m, A_K_MAJOR, TILE_ROWS, A_CHUNK
#define OPERAND_B b, b_column, b_row, first_column, n, B_K_MAJOR, TILE_COLUMNS, B_CHUNK
#define EXPANDED(macro, ...) macro(__VA_ARGS__)
#define FETCH_BOTH(from)                    \
    EXPANDED(FETCH, a_next, OPERAND_A, from) \
    EXPANDED(FETCH, b_next, OPERAND_B, from)
    CHUNK(A_CHUNK) a_next[IS_FETCHED(A_CHUNK) ? LOADS(TILE_ROWS, A_CHUNK) : 1];
    CHUNK(B_CHUNK) b_next[IS_FETCHED(B_CHUNK) ? LOADS(TILE_COLUMNS, B_CHUNK) : 1];
    FETCH_BOTH(start)
    for (uint from = start; from < end; from += DEPTH) {
        barrier(CLK_LOCAL_MEM_FENCE);
        EXPANDED(STAGE, left, a_next, OPERAND_A, from)
        EXPANDED(STAGE, right, b_next, OPERAND_B, from)
        barrier(CLK_LOCAL_MEM_FENCE);
        if (from + DEPTH < end) {
            FETCH_BOTH(from + DEPTH)
        }
        UNROLL_STEPS
        for (uint step = 0; step < DEPTH; step += UNIT_TERMS) {
            Columns columns[BLOCKS_ACROSS];
#pragma unroll
            for (uint j = 0; j < BLOCKS_ACROSS; j++)
                columns[j] = load_columns(right + (wave_column + j * UNIT_COLUMNS) * PITCH + step, PITCH);
#pragma unroll
            for (uint i = 0; i < BLOCKS_DOWN; i++) {
                const Rows rows = load_rows(left + (wave_row + i * UNIT_ROWS) * PITCH + step, PITCH);
#pragma unroll
                for (uint j = 0; j < BLOCKS_ACROSS; j++) sums[i][j] = multiply(sums[i][j], rows, columns[j]);
            }
        }
    }
#if SPLIT_K
#define TARGET partial
    partial += ((ulong)get_group_id(1) * get_num_groups(2) + batch) * m * n;
#else
#define TARGET out
    out += out_offset + (ulong)batch * m * n;
#endif
    const uint row_of_item = first_row + wave_row + SUM_ROW(0);
    TARGET += (ulong)row_of_item * n;
#pragma unroll
    for (uint j = 0; j < BLOCKS_ACROSS; j++) {
        const uint column = first_column + wave_column + j * UNIT_COLUMNS + SUM_COLUMN;
        if (column >= n) continue;
#pragma unroll
        for (uint i = 0; i < BLOCKS_DOWN; i++)
#pragma unroll
            for (uint s = 0; s < SUMS; s++) {
                const uint below = i * UNIT_ROWS + SUM_ROW(s) - SUM_ROW(0);
                if (row_of_item + below < m) {
                    float sum = ((float *)&sums[i][j])[s];
                    EPILOGUE_STEPS(sum, row_of_item + below, column, i0, i1, i2, 1)
#if SPLIT_K
                    partial[(ulong)below * n + column] = sum;
#else
                    STORE(OUT_DTYPE, sum, out, (ulong)below * n + column);
#endif
                }
            }
    }
}
