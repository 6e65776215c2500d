// out = a x b with an epilogue, on any GPU without tensor cores. A group of 256 work-items computes a tile of results from
// k-tiles of DEPTH terms that it stages in local memory. While one k-tile is multiplied the next one is in flight: in
// registers, or with ASYNC by asynchronous copies in a pipeline of STAGES.
//
// A work-item computes QUAD_ROWS x QUAD_COLUMNS blocks of 4 x 4. The blocks of a group are interleaved so that neighbours
// read neighbouring local memory: 32 work-items cover 8 x 4 blocks, the shape with the fewest loads. Work-items whose
// numbers differ by 1 share columns, by 2 rows: NVIDIA's local memory then serves twice as many at a time.
//
// With SPLIT_K groups divide the terms of a tile and write partial sums to `partial` (splits, batch, m, n), which
// gemm/split_k_reduce.cl reduces in a fixed order.

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
// Layout of each operand: 1, K-major: the terms of a row of a, or of a column of b, are contiguous; 0, MN-major: the rows
// of a, or the columns of b, are. Neighbouring work-items load along the contiguous axis.
#ifndef A_K_MAJOR
#define A_K_MAJOR 1
#endif
#ifndef B_K_MAJOR
#define B_K_MAJOR 0
#endif
// Asynchronous copies (float32 only), of 4 bytes, or of A_BYTES and B_BYTES for MN-major operands.
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
// 1: four neighbouring results, of type REAL, are stored at once.
#ifndef OUT_QUADS
#define OUT_QUADS 0
#endif
#ifndef SPLIT_K
#define SPLIT_K 0
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/unrolled_terms.h"
#include "lib/vectors.h"
#include "gemm/operands.h"
#include "gemm/tile_swizzle.h"

#define ITEMS 256
#define ROWS (64 * QUAD_ROWS)
#define COLUMNS (64 * QUAD_COLUMNS)
#define PITCH(extent) ((extent) + 4)
#define WORD_OF(k_major, extent, line, at) ((k_major) ? (at) * PITCH(extent) + (line) : (line) * PITCH(extent) + (at))
#define A_LOADS (ROWS * DEPTH / ITEMS)
#define B_LOADS (COLUMNS * DEPTH / ITEMS)
typedef CONCAT(REAL, 4) Quad;
#define UNPACK_QUAD(to, from)   \
    {                           \
        const Quad quad = from; \
        (to)[0] = quad.s0;      \
        (to)[1] = quad.s1;      \
        (to)[2] = quad.s2;      \
        (to)[3] = quad.s3;      \
    }

#if ASYNC
#include "lib/staging.h"
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tiles(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
#if SPLIT_K
    __global REAL *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint split_terms, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    __local REAL left[STAGES][DEPTH * PITCH(ROWS)] __attribute__((aligned(32)));
    __local REAL right[STAGES][DEPTH * PITCH(COLUMNS)] __attribute__((aligned(32)));
    const uint me = get_local_id(0);
    const uint2 tile = swizzled_tile(get_group_id(0), (m + ROWS - 1) / ROWS, (n + COLUMNS - 1) / COLUMNS);
    const uint first_row = tile.x * ROWS, first_column = tile.y * COLUMNS;
    const uint batch = get_group_id(2);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a = MATRIX_OF_A(i0, i1, i2) + a_offset;
    b = MATRIX_OF_B(i0, i1, i2) + b_offset;
    const uint start = get_group_id(1) * split_terms;
    const uint end = min(start + split_terms, k);
    const uint row4 = (me / 128 * 8 + me % 2 + me % 32 / 8 * 2) * 4, column4 = (me / 32 % 4 * 4 + me / 2 % 4) * 4;

    // Scalars rather than vectors: the compiler then allocates registers with fewer bank conflicts.
    REAL sums[4 * QUAD_ROWS][4 * QUAD_COLUMNS];
#pragma unroll
    for (uint i = 0; i < 4 * QUAD_ROWS; i++)
#pragma unroll
        for (uint j = 0; j < 4 * QUAD_COLUMNS; j++) sums[i][j] = 0;

#if ASYNC
#define TERMS_AHEAD ((STAGES - 1) * DEPTH)
    a = first_chunk(a + first_row * a_row + start * a_column, a_row, a_column, A_K_MAJOR, ROWS, A_BYTES);
    b = first_chunk(b + first_column * b_column + start * b_row, b_column, b_row, B_K_MAJOR, COLUMNS, B_BYTES);
#define FETCH(number, from)                                                                                      \
    stage_chunks((__local uint *)left[number], a, a_row, a_column, m - first_row, end - (from), A_K_MAJOR, ROWS, \
                 A_BYTES, 0, 1);                                                                                 \
    stage_chunks((__local uint *)right[number], b, b_column, b_row, n - first_column, end - (from), B_K_MAJOR,   \
                 COLUMNS, B_BYTES, 0, 1);                                                                        \
    a += DEPTH * a_column;                                                                                       \
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
#define TERMS_AHEAD DEPTH
#define COPIES_COMMIT()
#define COPIES_WAIT(n)
#define PLACE(k_major, extent, e) ((k_major) ? (e) / DEPTH : (e) % (extent))
#define TERM(k_major, extent, e) ((k_major) ? (e) % DEPTH : (e) / (extent))
#define FETCH(number, from)                                                                                                 \
    _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {                                                                  \
        const uint e = me + i * ITEMS, at = (from) + TERM(A_K_MAJOR, ROWS, e), row = first_row + PLACE(A_K_MAJOR, ROWS, e); \
        a_next[i] = at < end && row < m ? LOAD(DTYPE, a, row * a_row + at * a_column) : (REAL)0;                            \
    }                                                                                                                       \
    _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {                                                                  \
        const uint e = me + i * ITEMS, at = (from) + TERM(B_K_MAJOR, COLUMNS, e);                                           \
        const uint column = first_column + PLACE(B_K_MAJOR, COLUMNS, e);                                                    \
        b_next[i] = at < end && column < n ? LOAD(DTYPE, b, at * b_row + column * b_column) : (REAL)0;                      \
    }
#define STAGE(number)                                                                                           \
    _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {                                                      \
        const uint e = me + i * ITEMS;                                                                          \
        left[number][TERM(A_K_MAJOR, ROWS, e) * PITCH(ROWS) + PLACE(A_K_MAJOR, ROWS, e)] = a_next[i];           \
    }                                                                                                           \
    _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {                                                      \
        const uint e = me + i * ITEMS;                                                                          \
        right[number][TERM(B_K_MAJOR, COLUMNS, e) * PITCH(COLUMNS) + PLACE(B_K_MAJOR, COLUMNS, e)] = b_next[i]; \
    }

    REAL a_next[A_LOADS], b_next[B_LOADS];
    FETCH(0, start)
    STAGE(0)
#endif
    uint stage = 0;
    for (uint from = start; from < end; from += DEPTH) {
        COPIES_WAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint free = stage == 0 ? STAGES - 1 : stage - 1;
        const bool more = from + TERMS_AHEAD < end;
        if (more) {
            FETCH(free, from + TERMS_AHEAD)
        }
        COPIES_COMMIT();
        UNROLLED_TERMS for (uint p = 0; p < DEPTH; p++) {
            REAL x[4 * QUAD_ROWS], y[4 * QUAD_COLUMNS];
#pragma unroll
            for (uint q = 0; q < QUAD_ROWS; q++)
                UNPACK_QUAD(x + 4 * q, *(__local const Quad *)&left[stage][p * PITCH(ROWS) + q * 64 + row4])
#pragma unroll
            for (uint q = 0; q < QUAD_COLUMNS; q++)
                UNPACK_QUAD(y + 4 * q, *(__local const Quad *)&right[stage][p * PITCH(COLUMNS) + q * 64 + column4])
#pragma unroll
            for (uint i = 0; i < 4 * QUAD_ROWS; i++)
#pragma unroll
                for (uint j = 0; j < 4 * QUAD_COLUMNS; j++) sums[i][j] += x[i] * y[j];
        }
        if (more) {
            STAGE(free)
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
#if SPLIT_K
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
#if SPLIT_K
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
