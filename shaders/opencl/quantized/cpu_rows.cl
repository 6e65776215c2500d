// Products of few rows of x with quantised weights, on processors: out[r, n] = sum over i of x[r, i] * w[n, i].
//
// The weights are in tiles of 16 rows (quantized/fields.h). A lane of a vector has one row of weights, so that one number of x
// multiplies a vector of codes, and no sum across lanes is needed. A byte of a word becomes a float without a shift: it is
// masked in place, and x is divided by the same power of two beforehand. A work-item computes up to TILES tiles, a chunk of
// terms at a time, with the numbers of x for the chunk in its private memory.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef ROWS
#define ROWS 1
#endif
#define WIDTH 16
#define ALIGNED 0
#define ROW_LANES 16
#define TILES 16
#define CHUNK (4096 / ROWS)
#pragma OPENCL FP_CONTRACT ON
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "quantized/format.h"

// Numbers of x of a chunk: quads of numbers that multiply bytes 0 to 3 of words, and the sum of each part.
typedef struct {
    float quads[ROWS][CHUNK];
    float totals[ROWS][CHUNK / PART];
} Chunk;

FORCE_INLINE void load_chunk(__private Chunk *chunk, __global const STORAGE(DTYPE) *x, const long x_row, const uint rows,
                             const uint first, const uint count) {
    for (uint r = 0; r < ROWS; r++) {
        __global const STORAGE(DTYPE) *from = x + min(r, rows - 1) * x_row + first;
        for (uint p = 0; p < count / PART; p++) {
            float total = 0;
            for (uint i = p * PART; i < (p + 1) * PART; i += 4) {
                const float a = LOAD(DTYPE, from, i), b = LOAD(DTYPE, from, i + 1), c = LOAD(DTYPE, from, i + 2),
                            d = LOAD(DTYPE, from, i + 3);
                chunk->quads[r][i] = a;
                chunk->quads[r][i + 1] = b * 0x1p-8f;
                chunk->quads[r][i + 2] = c * 0x1p-16f;
                chunk->quads[r][i + 3] = d;
                total += (a + b) + (c + d);
            }
            chunk->totals[r][p] = total;
        }
    }
}

__kernel NO_AUTOVEC void quantized_cpu_rows(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const uchar *blocks,
                                            const ulong blocks_offset, __global STORAGE(DTYPE) *out, const ulong out_offset,
                                            const long x_row, const uint rows, const uint n, const uint k,
                                            const uint tiles_each) {
    const uint first_tile = get_group_id(0) * tiles_each, first_row = get_group_id(1) * ROWS;
    if (first_tile >= n / TILE) return;
    const uint tiles = min(tiles_each, n / TILE - first_tile), here = min(rows - first_row, (uint)ROWS);
    x += x_offset + first_row * x_row;
    blocks += blocks_offset;
    out += out_offset + (ulong)first_row * n;
    Chunk chunk;
    F sums[TILES][ROWS];
    for (uint t = 0; t < tiles; t++)
        for (uint r = 0; r < ROWS; r++) sums[t][r] = (F)(0);
    for (uint start = 0; start < k; start += CHUNK) {
        const uint count = min((uint)CHUNK, k - start);
        load_chunk(&chunk, x, x_row, here, start, count);
        for (uint t = 0; t < tiles; t++) {
            __global const uchar *tile =
                blocks + ((ulong)(first_tile + t) * (k / BLOCK) + start / BLOCK) * (TILE * BLOCK_BYTES);
            F sum[ROWS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++) sum[r] = sums[t][r];
            for (uint b = 0; b < count; b += BLOCK, tile += TILE * BLOCK_BYTES) {
#pragma unroll
                for (uint part = 0; part < BLOCK / PART; part++) {
                    F low[ROWS], high[ROWS];
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) low[r] = high[r] = (F)(0);
#pragma unroll
                    for (uint i = 0; i < PART / 4; i++) {
                        const U quads = QUADS(part, i);
                        const F b0 = FLOATS(quads & 0xffu), b1 = FLOATS(quads & 0xff00u), b2 = FLOATS(quads & 0xff0000u),
                                b3 = FLOATS(quads >> 24);
#pragma unroll
                        for (uint r = 0; r < ROWS; r++) {
                            __private const float *q = chunk.quads[r] + b + part * PART + 4 * i;
                            low[r] += b0 * q[0];
                            high[r] += b1 * q[1];
                            low[r] += b2 * q[2];
                            high[r] += b3 * q[3];
                        }
                    }
                    const F scales = SCALES(part);
#if HAS_LEAST
                    const F leasts = LEASTS(part);
#endif
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        const float total = chunk.totals[r][b / PART + part];
                        sum[r] += scales * (low[r] + high[r] - ZERO * total);
#if HAS_LEAST
                        sum[r] += leasts * total;
#endif
                    }
                }
            }
#pragma unroll
            for (uint r = 0; r < ROWS; r++) sums[t][r] = sum[r];
        }
    }
    for (uint t = 0; t < tiles; t++)
        for (uint r = 0; r < here; r++) STOREV(DTYPE, sums[t][r], out + (ulong)r * n + (first_tile + t) * TILE);
}
