// Products of few rows of x, of 16-bit floats, with quantised weights: out[r, n] = sum over i of x[r, i] * w[n, i].
//
// The weights are in tiles of 16 rows (quantized/fields.h). Codes become floats of x's type, exactly. An mma.sync of 16 x 8
// results multiplies 16 terms of a tile by 8 rows of x, from registers to registers: the order of the terms is free, so that
// a lane takes its quads of codes and of x as they are in memory. Scales multiply the sums of each part of a block.
//
// Of a group's warps, ACROSS take different tiles, and ALONG divide the pieces of a row; their sums are added in local
// memory. Before the wait for x (lib/dependent_launch.h) the first blocks are loaded and all are asked for. Several matrices,
// pairs of them, and a norm of x: gemm/joined.h. A normed x is in local memory, and so are several rows (STAGED), whose loads
// from global memory touch eight lines. With TENSOR_CORES 0 this is a portable fallback in plain C.

#ifndef DTYPE
#define DTYPE bfloat16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
// Rows of x of a group: a power of two up to 16.
#ifndef ROWS
#define ROWS 1
#endif
#ifndef ALONG
#define ALONG 8
#endif
#ifndef ACROSS
#define ACROSS 1
#endif
// Pieces of a warp that are loaded before one is multiplied.
#ifndef UNROLL
#define UNROLL 1
#endif
// 1: rows of x are brought to local memory first, as normed ones are.
#ifndef STAGED
#define STAGED NORM
#endif
// With STAGED: terms of a row of x.
#ifndef ROW_TERMS
#define ROW_TERMS 256
#endif
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#define MATRIX_TYPE uchar
#define WIDTH 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "quantized/lanes.h"
#include "lib/epilogue.h"
#include "gemm/joined.h"
#include "gemm/normed_words.h"
#include "lib/mma.h"
#include "lib/dependent_launch.h"

#define WARPS (ALONG * ACROSS)
#define ITEMS (32 * WARPS)
#define ROW_SETS ((ROWS + 7) / 8)
#define SET_ROWS (ROWS < 8 ? ROWS : 8)
// Tiles of a warp.
#define TILES (1 + PAIRS)
// Blocks of 256 weights are loaded and divided among warps in pieces, which need half of the registers.
#define PIECES (BLOCK > 128 ? BLOCK / 128 : 1)
#define PARTS (BLOCK / PART / PIECES)
#define HALVES (PART / 16)
// Floats from one row of a tile's sums to the next, and from one tile to the next: without bank conflicts.
#define SUM_PITCH 20
#define SUM_TILE (8 * SUM_PITCH)
#if STAGED
#define PITCH (ROW_TERMS / 2 + 8)
#define ROW_ITEMS (ITEMS / ROWS)
#define SHARES 8
#define X_QUAD(row, term) (*(__local const uint2 *)(staged + (row) * PITCH + (term) / 2))
#else
#define X_QUAD(row, term) (*(__global const uint2 *)(x + (row) * x_row + (term)))
#endif

// A lane's share of a piece; lane 4 * g + t has of rows g and g + 8 of the tile quads t and t + 4 of each part, and all scales.
typedef struct {
    uint quads[PARTS][HALVES][2];
    float scales[PARTS][2];
#if HAS_LEAST
    float leasts[PARTS][2];
#endif
} Piece;

FORCE_INLINE void load_parts(__private Piece *piece, __global const uchar *tile, const uint lane, const uint first) {
#pragma unroll
    for (uint part = 0; part < PARTS; part++)
#pragma unroll
        for (uint i = 0; i < 2; i++) {
            const uint row = lane / 4 + 8 * i;
#pragma unroll
            for (uint h = 0; h < HALVES; h++)
                piece->quads[part][h][i] = quads_of(tile, row, first + part, lane % 4 + 4 * h);
            piece->scales[part][i] = scale_of(tile, row, first + part);
#if HAS_LEAST
            piece->leasts[part][i] = least_of(tile, row, first + part);
#endif
        }
}

// Positions of fields in a block are constants in each branch.
FORCE_INLINE void load_piece(__private Piece *piece, __global const uchar *tile, const uint lane, const uint number) {
#if BLOCK > 128
    if (number) load_parts(piece, tile, lane, PARTS);
    else
#endif
        load_parts(piece, tile, lane, 0);
}

#if TENSOR_CORES
#define PRODUCT_float16(sums, a, b) MMA("m16n8k16", "f16", sums, a, (b).s0, (b).s1)
#define PRODUCT_bfloat16(sums, a, b) MMA("m16n8k16", "bf16", sums, a, (b).s0, (b).s1)
#define ONES_float16 0x3c003c00u
#define ONES_bfloat16 0x3f803f80u

// Bytes of `quad` and of `other`, by the four digits of `selector`.
static inline uint permuted(uint quad, uint other, uint selector) {
    uint word;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(quad), "r"(other), "r"(selector));
    return word;
}
// Codes minus ZERO in the low or the high half of a quad. A code is the last digits of a float of a fixed exponent.
static inline uint numbers_float16(uint quad, uint high) {
    uint word = permuted(quad, 0x64, high ? 0x4342 : 0x4140);
    asm("sub.f16x2 %0, %0, %1;" : "+r"(word) : "r"((0x6400 | ZERO) * 0x10001u));
    return word;
}
static inline uint numbers_bfloat16(uint quad, uint high) {
#if ZERO > 64
    // Here codes have 8 bits, more than a bfloat16 has behind its first digit.
    const float low = as_float(permuted(quad, 0x4b000000, high ? 0x7552 : 0x7550));
    const float next = as_float(permuted(quad, 0x4b000000, high ? 0x7553 : 0x7551));
    return pair_bfloat16(low - (8388608.0f + ZERO), next - (8388608.0f + ZERO));
#else
    uint word = permuted(quad, 0x43, high ? 0x4342 : 0x4140);
    asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(word) : "r"(ONES_bfloat16), "r"((0xc300 | ZERO) * 0x10001u));
    return word;
#endif
}
#else
static inline float dot_of_quad(uint quad, uint2 x) {
    const float2 low = CONCAT(values_, DTYPE)(x.s0), high = CONCAT(values_, DTYPE)(x.s1);
    return ((float)(quad & 255) - ZERO) * low.s0 + ((float)(quad >> 8 & 255) - ZERO) * low.s1 +
           ((float)(quad >> 16 & 255) - ZERO) * high.s0 + ((float)(quad >> 24) - ZERO) * high.s1;
}
static inline float sum_of_quad(uint2 x) {
    const float2 low = CONCAT(values_, DTYPE)(x.s0), high = CONCAT(values_, DTYPE)(x.s1);
    return low.s0 + low.s1 + high.s0 + high.s1;
}
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void quantized_few_rows(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const uchar *y, const ulong y_offset,
    JOINED_PARAMETERS EPILOGUE_PARAMETERS __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const long x_row,
    const uint rows, const uint n, const uint k) {
    START_NEXT
    UNPACK_EPILOGUE
    __local float memory[WARPS * TILES * SUM_TILE];
#if STAGED
    __local uint staged[ROWS * PITCH] __attribute__((aligned(16)));
#endif
#if NORM
    __local float squares[ITEMS], shares[ROWS * SHARES];
#endif
    const uint me = get_local_id(0), lane = me % 32, warp = me / 32, along = warp % ALONG, across = warp / ALONG;
    const uint first_row = get_group_id(1) * ROWS, here = min(rows - first_row, (uint)ROWS);
    const uint pieces = k / BLOCK * PIECES;
    // A warp beyond the last tile computes the last one again.
    const uint own_column = min((uint)(get_group_id(0) * ACROSS + across) * TILE, n - TILE);
    const long y_column = (long)(k / BLOCK) * BLOCK_BYTES;
    x += x_offset + first_row * x_row;
    y += y_offset;
    out += out_offset;
    LOCATE_SCALE
    SELECT_MATRIX(own_column)
    if (lane == 0 && along == 0)
#pragma unroll
        for (uint p = 0; p < TILES; p++) PREFETCH_RANGE(MATRIX_OF(p) + own_column * y_column, TILE * (uint)y_column)
    float sums[TILES][ROW_SETS][4];
#pragma unroll
    for (uint p = 0; p < TILES; p++)
#pragma unroll
        for (uint s = 0; s < ROW_SETS; s++)
#pragma unroll
            for (uint i = 0; i < 4; i++) sums[p][s][i] = 0;

    for (uint from = 0; from < pieces; from += ALONG * UNROLL) {
        Piece loaded[UNROLL][TILES];
#pragma unroll
        for (uint u = 0; u < UNROLL; u++)
#pragma unroll
            for (uint p = 0; p < TILES; p++) {
                const uint piece = min(from + u * ALONG + along, pieces - 1);
                __global const uchar *tile = MATRIX_OF(p) + own_column * y_column + piece / PIECES * (TILE * BLOCK_BYTES);
                load_piece(&loaded[u][p], tile, lane, piece % PIECES);
            }
        if (!from) {
            AWAIT_INPUTS
#if STAGED
            const uint r = me / ROW_ITEMS;
#if NORM
            float mine = 0;
#endif
            if (r < here)
                for (uint at = me % ROW_ITEMS; at < ROW_TERMS / 8; at += ROW_ITEMS) {
                    uint4 words = *(__global const uint4 *)(x + r * x_row + at * 8);
#if NORM
                    words = normed_words(words, *(__global const uint4 *)(scale + at * 8), &mine);
#endif
                    *(__local uint4 *)(staged + r * PITCH + at * 4) = words;
                }
#if NORM
            squares[me] = mine;
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
        }
#pragma unroll
        for (uint u = 0; u < UNROLL; u++) {
            const uint piece = from + u * ALONG + along;
            if (piece >= pieces) continue;
#pragma unroll
            for (uint part = 0; part < PARTS; part++) {
                const uint term = (piece * PARTS + part) * PART;
#pragma unroll
                for (uint s = 0; s < ROW_SETS; s++) {
#if TENSOR_CORES
                    // Column g of the second operand is a row of x; a row that repeats the last one is not stored.
                    uint2 quads[HALVES];
#pragma unroll
                    for (uint h = 0; h < HALVES; h++)
                        quads[h] = X_QUAD(min(8 * s + lane / 4, here - 1), term + 4 * (lane % 4) + 16 * h);
#if HAS_LEAST
                    Fragment ones;
                    ones.r[0] = ones.r[1] = ones.r[2] = ones.r[3] = CONCAT(ONES_, DTYPE);
                    float totals[4] = {0, 0, 0, 0};
#pragma unroll
                    for (uint h = 0; h < HALVES; h++) CONCAT(PRODUCT_, DTYPE)(totals, ones, quads[h]);
#endif
#endif
#pragma unroll
                    for (uint p = 0; p < TILES; p++) {
                        float products[4] = {0, 0, 0, 0};
#if TENSOR_CORES
#pragma unroll
                        for (uint h = 0; h < HALVES; h++) {
                            Fragment codes;
#pragma unroll
                            for (uint i = 0; i < 4; i++)
                                codes.r[i] = CONCAT(numbers_, DTYPE)(loaded[u][p].quads[part][h][i % 2], i / 2);
                            CONCAT(PRODUCT_, DTYPE)(products, codes, quads[h]);
                        }
#else
                        float totals[2] = {0, 0};
                        __global const uchar *tile =
                            MATRIX_OF(p) + own_column * y_column + piece / PIECES * (TILE * BLOCK_BYTES);
                        const uint in_block = piece % PIECES * PARTS + part;
                        for (uint q = 0; q < PART / 4; q++)
                            for (uint i = 0; i < 4; i++) {
                                const uint2 quad = X_QUAD(min(8 * s + lane % 4 * 2 + i % 2, here - 1), term + 4 * q);
                                products[i] += dot_of_quad(quads_of(tile, lane / 4 + i / 2 * 8, in_block, q), quad);
                                if (i < 2) totals[i] += sum_of_quad(quad);
                            }
#endif
#pragma unroll
                        for (uint i = 0; i < 4; i++) {
                            sums[p][s][i] += loaded[u][p].scales[part][i / 2] * products[i];
#if HAS_LEAST
                            sums[p][s][i] += loaded[u][p].leasts[part][i / 2] * totals[i % 2];
#endif
                        }
                    }
                }
            }
        }
    }
#if NORM
    for (uint at = me; at < ROWS * SHARES; at += ITEMS) {
        float share = 0;
        for (uint i = at % SHARES; i < ROW_ITEMS; i += SHARES) share += squares[at / SHARES * ROW_ITEMS + i];
        shares[at] = share;
    }
#endif
#pragma unroll
    for (uint s = 0; s < ROW_SETS; s++) {
        if (s) barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint p = 0; p < TILES; p++)
#pragma unroll
            for (uint i = 0; i < 4; i++)
                memory[((along * ACROSS + across) * TILES + p) * SUM_TILE + (lane % 4 * 2 + i % 2) * SUM_PITCH + lane / 4 +
                       i / 2 * 8] = sums[p][s][i];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint at = me; at < ACROSS * SET_ROWS * TILE; at += ITEMS) {
            const uint tile_of = at / TILE % ACROSS, line = at / (TILE * ACROSS), row = s * 8 + line;
            const uint column = (get_group_id(0) * ACROSS + tile_of) * TILE + at % TILE;
            if (row >= here || column >= n) continue;
            float sum = 0;
            for (uint w = 0; w < ALONG; w++)
                sum += memory[(w * ACROSS + tile_of) * TILES * SUM_TILE + line * SUM_PITCH + at % TILE];
#if PAIRS
            float other = 0;
            for (uint w = 0; w < ALONG; w++)
                other += memory[((w * ACROSS + tile_of) * TILES + 1) * SUM_TILE + line * SUM_PITCH + at % TILE];
#endif
#if NORM
            float total = 0;
            for (uint i = 0; i < SHARES; i++) total += shares[row * SHARES + i];
            const float factor = NORM_FACTOR(total, ROW_TERMS);
            sum *= factor;
#if PAIRS
            other *= factor;
#endif
#endif
            const uint result_row = first_row + row;
            EPILOGUE_STEPS(sum, result_row, column, 0, 0, 0, 1)
            STORE(OUT_DTYPE, sum, out, (ulong)result_row * n + column);
        }
    }
}
