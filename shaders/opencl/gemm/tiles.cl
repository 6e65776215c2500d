// out = a x b, finished by an epilogue, on a GPU: a group of 256 work-items makes a tile of results from strips of
// DEPTH terms that it stages in local memory, term after term. While one strip is multiplied, the next is already on
// its way, into registers or, with ASYNC, by copies that need none; then STAGES strips are there or under way.
//
// A work-item makes QUAD_ROWS x QUAD_COLUMNS blocks of 4 by 4, the blocks of a group being interleaved, so that
// neighbours read neighbouring local memory: 32 of them 8 x 4 blocks, the least that they can read together. Work-items
// whose numbers differ by 1 share columns, by 2 rows: NVIDIA's local memory then serves twice as many at once. With
// SPLIT the groups of a tile share out the terms and write their sums to `partial` (split, batch, m, n), which
// gemm/split_k_reduce.cl adds up in a fixed order.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef QUAD_ROWS
#define QUAD_ROWS 2
#endif
#ifndef QUAD_COLUMNS
#define QUAD_COLUMNS 2
#endif
#ifndef DEPTH
#define DEPTH 8
#endif
// Whether an operand's terms are contiguous, or else its places (rows of a, columns of b): neighbouring work-items
// then read neighbouring memory.
#ifndef A_ALONG
#define A_ALONG 1
#endif
#ifndef B_ALONG
#define B_ALONG 0
#endif
// Asynchronous copies (float32 only): of 4 bytes, or of A_BYTES and B_BYTES where places are contiguous.
#ifndef ASYNC
#define ASYNC 0
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef A_BYTES
#define A_BYTES 4
#endif
#ifndef B_BYTES
#define B_BYTES 4
#endif
// Whether four neighbouring results, of the type of the sums, may be stored at once.
#ifndef OUT_QUADS
#define OUT_QUADS 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "gemm/operands.h"
#include "gemm/tile_swizzle.h"

#define ITEMS 256
#define ROWS (64 * QUAD_ROWS)
#define COLUMNS (64 * QUAD_COLUMNS)
#define PITCH(extent) ((extent) + 4)
#define WORD_OF(along, extent, line, at) ((along) ? (at) * PITCH(extent) + (line) : (line) * PITCH(extent) + (at))
#define A_LOADS (ROWS * DEPTH / ITEMS)
#define B_LOADS (COLUMNS * DEPTH / ITEMS)
typedef CONCAT(REAL, 4) Quad;
#define SPREAD(to, from)       \
    {                          \
        const Quad quad = from; \
        (to)[0] = quad.s0;     \
        (to)[1] = quad.s1;     \
        (to)[2] = quad.s2;     \
        (to)[3] = quad.s3;     \
    }

#if ASYNC
#include "lib/staging.h"
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tiles(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
#if SPLIT
    __global REAL *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint terms, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    __local REAL left[STAGES][DEPTH * PITCH(ROWS)] __attribute__((aligned(32)));
    __local REAL right[STAGES][DEPTH * PITCH(COLUMNS)] __attribute__((aligned(32)));
    const uint me = get_local_id(0);
    const uint2 tile = place_of_tile(get_group_id(0), (m + ROWS - 1) / ROWS, (n + COLUMNS - 1) / COLUMNS);
    const uint first_row = tile.x * ROWS, first_column = tile.y * COLUMNS;
    const uint batch = get_group_id(2);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a = MATRIX_OF_A(i0, i1, i2) + a_offset;
    b = MATRIX_OF_B(i0, i1, i2) + b_offset;
    const uint start = get_group_id(1) * terms;
    const uint end = min(start + terms, k);
    const uint row4 = (me / 128 * 8 + me % 2 + me % 32 / 8 * 2) * 4, column4 = (me / 32 % 4 * 4 + me / 2 % 4) * 4;

    // Single sums, for which the compiler finds registers that collide less than those of vectors.
    REAL sums[4 * QUAD_ROWS][4 * QUAD_COLUMNS];
#pragma unroll
    for (uint i = 0; i < 4 * QUAD_ROWS; i++)
#pragma unroll
        for (uint j = 0; j < 4 * QUAD_COLUMNS; j++) sums[i][j] = 0;

#if ASYNC
#define AHEAD ((STAGES - 1) * DEPTH)
    a = first_chunk(a + first_row * a_row + start * a_column, a_row, a_column, A_ALONG, ROWS, A_BYTES);
    b = first_chunk(b + first_column * b_column + start * b_row, b_column, b_row, B_ALONG, COLUMNS, B_BYTES);
#define FETCH(number, from)                                                                                    \
    stage_chunks((__local uint *)left[number], a, a_row, a_column, m - first_row, end - (from), A_ALONG, ROWS, \
                 A_BYTES, 0, 1);                                                                               \
    stage_chunks((__local uint *)right[number], b, b_column, b_row, n - first_column, end - (from), B_ALONG,   \
                 COLUMNS, B_BYTES, 0, 1);                                                                      \
    a += DEPTH * a_column;                                                                                     \
    b += DEPTH * b_row;
#define STAGE(number)

#pragma unroll
    for (uint s = 0; s < STAGES - 1; s++) {
        if (start + s * DEPTH < end) {
            FETCH(s, start + s * DEPTH)
        }
        COPIES_COMMIT();
    }
#else
#define AHEAD DEPTH
#define COPIES_COMMIT()
#define COPIES_WAIT(n)
#define PLACE(along, extent, e) ((along) ? (e) / DEPTH : (e) % (extent))
#define TERM(along, extent, e) ((along) ? (e) % DEPTH : (e) / (extent))
#define FETCH(number, from)                                                                                            \
    _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {                                                             \
        const uint e = me + i * ITEMS, at = (from) + TERM(A_ALONG, ROWS, e), row = first_row + PLACE(A_ALONG, ROWS, e); \
        a_next[i] = at < end && row < m ? LOAD(DTYPE, a, row * a_row + at * a_column) : (REAL)0;                       \
    }                                                                                                                  \
    _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {                                                             \
        const uint e = me + i * ITEMS, at = (from) + TERM(B_ALONG, COLUMNS, e);                                        \
        const uint column = first_column + PLACE(B_ALONG, COLUMNS, e);                                                 \
        b_next[i] = at < end && column < n ? LOAD(DTYPE, b, at * b_row + column * b_column) : (REAL)0;                 \
    }
#define STAGE(number)                                                                                    \
    _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {                                               \
        const uint e = me + i * ITEMS;                                                                   \
        left[number][TERM(A_ALONG, ROWS, e) * PITCH(ROWS) + PLACE(A_ALONG, ROWS, e)] = a_next[i];        \
    }                                                                                                    \
    _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {                                               \
        const uint e = me + i * ITEMS;                                                                   \
        right[number][TERM(B_ALONG, COLUMNS, e) * PITCH(COLUMNS) + PLACE(B_ALONG, COLUMNS, e)] = b_next[i]; \
    }

    REAL a_next[A_LOADS], b_next[B_LOADS];
    FETCH(0, start)
    STAGE(0)
#endif
    uint now = 0;
    for (uint from = start; from < end; from += DEPTH) {
        COPIES_WAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint free = now == 0 ? STAGES - 1 : now - 1;
        const bool more = from + AHEAD < end;
        if (more) {
            FETCH(free, from + AHEAD)
        }
        COPIES_COMMIT();
#pragma unroll
        for (uint p = 0; p < DEPTH; p++) {
            REAL x[4 * QUAD_ROWS], y[4 * QUAD_COLUMNS];
#pragma unroll
            for (uint q = 0; q < QUAD_ROWS; q++)
                SPREAD(x + 4 * q, *(__local const Quad *)&left[now][p * PITCH(ROWS) + q * 64 + row4])
#pragma unroll
            for (uint q = 0; q < QUAD_COLUMNS; q++)
                SPREAD(y + 4 * q, *(__local const Quad *)&right[now][p * PITCH(COLUMNS) + q * 64 + column4])
#pragma unroll
            for (uint i = 0; i < 4 * QUAD_ROWS; i++)
#pragma unroll
                for (uint j = 0; j < 4 * QUAD_COLUMNS; j++) sums[i][j] += x[i] * y[j];
        }
        if (more) {
            STAGE(free)
        }
        now = now + 1 == STAGES ? 0 : now + 1;
    }
#if SPLIT
    partial += ((ulong)get_group_id(1) * get_num_groups(2) + batch) * m * n;
#define TARGET partial
#else
    out += out_offset + (ulong)batch * m * n;
#define TARGET out
#endif
#pragma unroll
    for (uint i = 0; i < 4 * QUAD_ROWS; i++) {
        const uint row = first_row + i / 4 * 64 + row4 + i % 4;
        if (row >= m) continue;
#pragma unroll
        for (uint j = 0; j < QUAD_COLUMNS; j++) {
            const uint column = first_column + j * 64 + column4;
            if (column >= n) continue;
            const uint left_here = min(4u, n - column);
            const ulong at = (ulong)row * n + column;
            Quad sum = (Quad)(sums[i][4 * j], sums[i][4 * j + 1], sums[i][4 * j + 2], sums[i][4 * j + 3]);
            EPILOGUE_STEPS(sum, row, column, i0, i1, i2, left_here)
#if OUT_QUADS
            *(__global Quad *)(TARGET + at) = sum;
#else
            const REAL values[4] = {sum.s0, sum.s1, sum.s2, sum.s3};
#pragma unroll
            for (uint c = 0; c < 4; c++) {
                if (c < left_here) {
#if SPLIT
                    partial[at + c] = values[c];
#else
                    STORE(OUT_DTYPE, values[c], out, at + c);
#endif
                }
            }
#endif
        }
    }
}
