// out = a x b (+ bias) on a GPU: a group of 256 work-items makes a tile of TILE by TILE results from strips of DEPTH terms that it
// stages in local memory. While one strip is multiplied, the next is already on its way into registers.
//
// A work-item makes QUADS x QUADS blocks of 4 by 4, the blocks of a group being interleaved, so that neighbours read
// neighbouring local memory. With SPLIT the groups of a tile share out the terms and write their sums to `partial`
// (split, batch, m, n), which matmul_sum.cl adds up in a fixed order.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef QUADS
#define QUADS 2
#endif
#ifndef DEPTH
#define DEPTH 8
#endif
// Which axis of the operands is contiguous: neighbouring work-items then read neighbouring memory.
#ifndef A_BY_ROWS
#define A_BY_ROWS 1
#endif
#ifndef B_BY_ROWS
#define B_BY_ROWS 1
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#include "dtypes.h"

#define GROUP 256
#define SIDE 16
#define TILE (64 * QUADS)
#define PITCH (TILE + 4)
#define LOADS (TILE * DEPTH / GROUP)
typedef CONCAT(REAL, 4) Quad;

// Tiles are taken in strips of this many rows, so that groups at work together share operands in the cache.
#define STRIP 8

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void matmul_tiles(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
#if BIAS
    __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
#if SPLIT
    __global REAL *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint m, const uint n, const uint k, const uint terms, const long a_row, const long a_column, const long b_row,
    const long b_column, const uint batch1, const uint batch2, const long a_batch0, const long a_batch1,
    const long a_batch2, const long b_batch0, const long b_batch1, const long b_batch2) {
    __local REAL left[2][DEPTH * PITCH] __attribute__((aligned(32)));
    __local REAL right[2][DEPTH * PITCH] __attribute__((aligned(32)));
    const uint me = get_local_id(0);
    const uint across = (n + TILE - 1) / TILE, down = (m + TILE - 1) / TILE;
    const uint tile = get_group_id(0);
    const uint strip = tile / (STRIP * across);
    const uint height = min((uint)STRIP, down - strip * STRIP);
    const uint within = tile - strip * STRIP * across;
    const uint first_row = (strip * STRIP + within % height) * TILE;
    const uint first_column = within / height * TILE;
    const uint batch = get_group_id(2);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a += a_offset + (long)i0 * a_batch0 + (long)i1 * a_batch1 + (long)i2 * a_batch2;
    b += b_offset + (long)i0 * b_batch0 + (long)i1 * b_batch1 + (long)i2 * b_batch2;
    const uint start = get_group_id(1) * terms;
    const uint end = min(start + terms, k);

    // The places of the elements that this work-item stages.
    uint a_at[LOADS], a_term[LOADS], b_at[LOADS], b_term[LOADS];
#pragma unroll
    for (uint i = 0; i < LOADS; i++) {
        const uint e = me + i * GROUP;
        a_term[i] = A_BY_ROWS ? e % DEPTH : e / TILE;
        a_at[i] = A_BY_ROWS ? e / DEPTH : e % TILE;
        b_term[i] = B_BY_ROWS ? e / TILE : e % DEPTH;
        b_at[i] = B_BY_ROWS ? e % TILE : e / DEPTH;
    }
    REAL a_next[LOADS], b_next[LOADS];
    Quad sums[4 * QUADS][QUADS];
#pragma unroll
    for (uint i = 0; i < 4 * QUADS; i++)
#pragma unroll
        for (uint j = 0; j < QUADS; j++) sums[i][j] = (Quad)(0);

#define FETCH(from) \
    _Pragma("unroll") for (uint i = 0; i < LOADS; i++) { \
        const uint at = (from) + a_term[i], row = first_row + a_at[i]; \
        a_next[i] = at < end && row < m ? LOAD(DTYPE, a, row * a_row + at * a_column) : (REAL)0; \
        const uint bt = (from) + b_term[i], column = first_column + b_at[i]; \
        b_next[i] = bt < end && column < n ? LOAD(DTYPE, b, bt * b_row + column * b_column) : (REAL)0; \
    }
#define STAGE(side) \
    _Pragma("unroll") for (uint i = 0; i < LOADS; i++) { \
        left[side][a_term[i] * PITCH + a_at[i]] = a_next[i]; \
        right[side][b_term[i] * PITCH + b_at[i]] = b_next[i]; \
    }

    const uint row4 = me / SIDE * 4, column4 = me % SIDE * 4;
    FETCH(start)
    STAGE(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    uint side = 0;
    for (uint from = start; from < end; from += DEPTH) {
        const bool more = from + DEPTH < end;
        if (more) {
            FETCH(from + DEPTH)
        }
#pragma unroll
        for (uint p = 0; p < DEPTH; p++) {
            Quad x[QUADS], y[QUADS];
#pragma unroll
            for (uint q = 0; q < QUADS; q++) {
                x[q] = *(__local const Quad *)&left[side][p * PITCH + q * 64 + row4];
                y[q] = *(__local const Quad *)&right[side][p * PITCH + q * 64 + column4];
            }
#pragma unroll
            for (uint q = 0; q < QUADS; q++)
#pragma unroll
                for (uint j = 0; j < QUADS; j++) {
                    sums[4 * q + 0][j] += x[q].s0 * y[j];
                    sums[4 * q + 1][j] += x[q].s1 * y[j];
                    sums[4 * q + 2][j] += x[q].s2 * y[j];
                    sums[4 * q + 3][j] += x[q].s3 * y[j];
                }
        }
        if (more) {
            STAGE(side ^ 1)
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        side ^= 1;
    }
#if SPLIT
    partial += ((ulong)get_group_id(1) * get_num_groups(2) + batch) * m * n;
#else
    out += out_offset + (ulong)batch * m * n;
#endif
#pragma unroll
    for (uint i = 0; i < 4 * QUADS; i++) {
        const uint row = first_row + i / 4 * 64 + row4 + i % 4;
#pragma unroll
        for (uint j = 0; j < QUADS; j++) {
            const REAL values[4] = {sums[i][j].s0, sums[i][j].s1, sums[i][j].s2, sums[i][j].s3};
#pragma unroll
            for (uint c = 0; c < 4; c++) {
                const uint column = first_column + j * 64 + column4 + c;
                if (row < m && column < n) {
#if SPLIT
                    partial[(ulong)row * n + column] = values[c];
#elif BIAS
                    STORE(OUT_DTYPE, values[c] + LOAD(DTYPE, bias, bias_offset + column), out, (ulong)row * n + column);
#else
                    STORE(OUT_DTYPE, values[c], out, (ulong)row * n + column);
#endif
                }
            }
        }
    }
}
