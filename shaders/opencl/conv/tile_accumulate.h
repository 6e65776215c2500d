// A tile of ROWS x COLUMNS results that a group accumulates from k-slices of DEPTH staged in local memory.
//
// A slice of an operand has one line per k index, at distance `pitch`, with the tile's rows or columns contiguous.
// Every 32 work-items make a sub-tile of 32 * ROW_BLOCKS rows by 32 * COLUMN_BLOCKS columns. Work-item (y, x) of 8 x 4
// holds rows 32 * b + 4 * y + 0..3 and columns 32 * b + 8 * x + 0..7 of every block b. With ITEM_WIDTH 4, for GPUs with
// few registers, blocks have 16 columns and work-items columns 16 * b + 4 * x + 0..3.
//
// BF16_TERMS 0: REAL numbers are multiplied directly. Otherwise tensor cores multiply HALF_TYPE numbers (float16 or
// bfloat16) in slices of 16. 1: operands are rounded to HALF_TYPE. 3 (bf16x3): a float32 is the sum of three bfloat16 terms,
// and the six largest of the nine products of terms are as exact as a float32 product. Three products of TF32 numbers
// are equally exact, but with these the kernel was slower: 115 TFLOP/s on an H200.
//
// With LEFT_PACKED the left operand is staged as such terms, in words of two consecutive k of a row. Rows and columns are
// assigned to the blocks of the tensor cores so that a work-item holds the same results with and without them
// (multiply_slice is the portable fallback) and so that fragments are read as whole quads without bank conflicts.

#ifndef POLYHAL_CONV_TILE_ACCUMULATE
#define POLYHAL_CONV_TILE_ACCUMULATE

#ifndef BF16_TERMS
#define BF16_TERMS 0
#endif
#ifndef HALF_TYPE
#define HALF_TYPE bfloat16
#endif
#ifndef LEFT_PACKED
#define LEFT_PACKED 0
#endif
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#ifndef ITEM_WIDTH
#define ITEM_WIDTH 8
#endif
#include "lib/dtypes.h"
#include "lib/mma.h"
#include "lib/unrolled_terms.h"

// Columns of a block, and vectors of four that a work-item holds of a row of it.
#if ITEM_WIDTH == 4
#define BLOCK_COLUMNS 16
#define BLOCK_VECTORS 1
#else
#define BLOCK_COLUMNS 32
#define BLOCK_VECTORS 2
#endif
#define GROUP (ROWS * COLUMNS / (BLOCK_COLUMNS * ROW_BLOCKS * COLUMN_BLOCKS))
#define WARPS_ACROSS (COLUMNS / (BLOCK_COLUMNS * COLUMN_BLOCKS))
#define RIGHT_PITCH (COLUMNS + 4)
#define RIGHT_SLICE (DEPTH * RIGHT_PITCH)
#if LEFT_PACKED
#define LEFT uint
#define LEFT_LINES (BF16_TERMS * DEPTH / 2)
#define LEFT_PITCH (ROWS + 8)
#else
#define LEFT REAL
#define LEFT_LINES DEPTH
#define LEFT_PITCH (ROWS + 4)
#endif
#define LEFT_SLICE (LEFT_LINES * LEFT_PITCH)
typedef CONCAT(REAL, 4) Quad;
typedef CONCAT(LEFT, 4) LeftQuad;

#define UNROLLED(i, n) _Pragma("unroll") for (uint i = 0; i < (n); i++)
#define ITEM_ROWS (4 * ROW_BLOCKS)
#define ITEM_COLUMNS (ITEM_WIDTH * COLUMN_BLOCKS)
// The accumulator of the work-item's row r and column c, in the order of the tensor cores.
#define ACC(r, c) acc[(r) / 2][(c) / 8 * 2 + (c) % 4 / 2][(c) % 2 * 4 + (r) % 2 * 2 + (c) / 4 % 2]
#define DECLARE_ACC REAL acc[2 * ROW_BLOCKS][2 * COLUMN_BLOCKS][8];
#define CLEAR_ACC UNROLLED(i, 2 * ROW_BLOCKS) UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8) acc[i][j][e] = 0;

#define LANE (get_local_id(0) % 32)
#define WARP_ROW (get_local_id(0) / 32 / WARPS_ACROSS * 32 * ROW_BLOCKS)
#define WARP_COLUMN (get_local_id(0) / 32 % WARPS_ACROSS * BLOCK_COLUMNS * COLUMN_BLOCKS)
#define ROW_OF(r) (WARP_ROW + (r) / 4 * 32 + LANE / 4 * 4 + (r) % 4)
#define COLUMN_OF(c) (WARP_COLUMN + (c) / ITEM_WIDTH * BLOCK_COLUMNS + LANE % 4 * ITEM_WIDTH + (c) % ITEM_WIDTH)

#define UNPACK(to, q) \
    (to)[0] = (q).s0; \
    (to)[1] = (q).s1; \
    (to)[2] = (q).s2; \
    (to)[3] = (q).s3;

#if LEFT_PACKED
static inline float unpacked_float16(uint word, uint second) {
    const uint bits = second ? word >> 16 : word & 0xffff;
    return vload_half(0, (const half *)&bits);
}
static inline float unpacked_bfloat16(uint word, uint second) {
    return as_float(second ? word & 0xffff0000 : word << 16);
}

// Four rows of k index k_ of the left operand.
static inline Quad left_quad(__local const uint *left, uint k_) {
    Quad q = 0;
    UNROLLED(term, BF16_TERMS) {
        const uint4 words = *(__local const uint4 *)(left + (term * DEPTH / 2 + k_ / 2) * LEFT_PITCH);
        q += (Quad)(CONCAT(unpacked_, HALF_TYPE)(words.s0, k_ % 2), CONCAT(unpacked_, HALF_TYPE)(words.s1, k_ % 2),
                    CONCAT(unpacked_, HALF_TYPE)(words.s2, k_ % 2), CONCAT(unpacked_, HALF_TYPE)(words.s3, k_ % 2));
    }
    return q;
}
#else
static inline Quad left_quad(__local const REAL *left, uint k_) {
    return *(__local const Quad *)(left + k_ * LEFT_PITCH);
}
#endif

static inline void multiply_slice(REAL acc[2 * ROW_BLOCKS][2 * COLUMN_BLOCKS][8], __local const LEFT *left,
                                  __local const REAL *right) {
    left += ROW_OF(0);
    right += COLUMN_OF(0);
    UNROLLED_TERMS for (uint k_ = 0; k_ < (DEPTH); k_++) {
        REAL x[ITEM_ROWS], y[ITEM_COLUMNS];
        UNROLLED(b, ROW_BLOCKS) {
            const Quad q = left_quad(left + 32 * b, k_);
            UNPACK(x + 4 * b, q)
        }
        UNROLLED(b, BLOCK_VECTORS * COLUMN_BLOCKS) {
            const Quad q =
                *(__local const Quad *)(right + k_ * RIGHT_PITCH + b / BLOCK_VECTORS * BLOCK_COLUMNS + b % BLOCK_VECTORS * 4);
            UNPACK(y + 4 * b, q)
        }
        UNROLLED(r, ITEM_ROWS) UNROLLED(c, ITEM_COLUMNS) ACC(r, c) += x[r] * y[c];
    }
}

#if TENSOR_CORES
#define PACKED_bfloat16(low, high) bfloats_of_floats(low, high)
#define PACKED_float16(low, high) pair_of_halves(low, high)

// Two consecutive k of a row or column as one word per bf16 term.
static inline void split_pair(uint words[BF16_TERMS], float low, float high) {
    UNROLLED(term, BF16_TERMS) {
        words[term] = CONCAT(PACKED_, HALF_TYPE)(low, high);
        low -= as_float(words[term] << 16);
        high -= as_float(words[term] & 0xffff0000);
    }
}

// The bf16 terms of two fragments of 16 rows of a, or columns of b, from a block of 32 by 16 k. A work-item reads k
// 2 * x + 0, 1, 8 and 9; elements 0 and 1 of a quad go to the first fragment, 2 and 3 to the second. A fragment of a has both
// elements of one half of k in neighbouring registers, one of b both halves of an element (see lib/mma.h).
static inline void split_block(Fragment to[BF16_TERMS][2], __local const float *from, const uint pitch,
                               const uint is_b) {
    float quads[4][4];
    UNROLLED(i, 4) {
        const float4 q = *(__local const float4 *)(from + (i / 2 * 8 + i % 2) * pitch);
        UNPACK(quads[i], q)
    }
    UNROLLED(e, 4) UNROLLED(half_, 2) {
        uint words[BF16_TERMS];
        split_pair(words, quads[2 * half_][e], quads[2 * half_ + 1][e]);
        const uint i = is_b ? e % 2 * 2 + half_ : half_ * 2 + e % 2;
        UNROLLED(term, BF16_TERMS) to[term][e / 2].r[i] = words[term];
    }
}

// The fragments of a from a packed left operand.
static inline void unpack_block(Fragment to[BF16_TERMS][2], __local const uint *from) {
    UNROLLED(term, BF16_TERMS) UNROLLED(half_, 2) {
        const uint4 q = *(__local const uint4 *)(from + (term * DEPTH / 2 + half_ * 4) * LEFT_PITCH);
        to[term][0].r[half_ * 2] = q.s0;
        to[term][0].r[half_ * 2 + 1] = q.s1;
        to[term][1].r[half_ * 2] = q.s2;
        to[term][1].r[half_ * 2 + 1] = q.s3;
    }
}

static inline void multiply_on_tensor_cores(float acc[2 * ROW_BLOCKS][2 * COLUMN_BLOCKS][8], __local const LEFT *left,
                                            __local const float *right) {
    const uint lane_x = LANE % 4, row = LANE / 4 * 4;
    Fragment y[COLUMN_BLOCKS][BF16_TERMS][2];
    UNROLLED(b, COLUMN_BLOCKS)
        split_block(y[b], right + 2 * lane_x * RIGHT_PITCH + WARP_COLUMN + 32 * b + row, RIGHT_PITCH, 1);
    UNROLLED(b, ROW_BLOCKS) {
        Fragment x[BF16_TERMS][2];
#if LEFT_PACKED
        unpack_block(x, left + lane_x * LEFT_PITCH + WARP_ROW + 32 * b + row);
#else
        split_block(x, left + 2 * lane_x * LEFT_PITCH + WARP_ROW + 32 * b + row, LEFT_PITCH, 0);
#endif
        UNROLLED(i, 2) {
#if BF16_TERMS == 1
            UNROLLED(j, 2 * COLUMN_BLOCKS) MULTIPLY(HALF_TYPE, acc[2 * b + i][j], x[0][i], y[j / 2][0][j % 2]);
#else
            // The units truncate as they add, so each slice starts at zero there, with the smallest products first. A
            // product of a block depends on the previous one, so the products of several blocks are interleaved.
            float product[2 * COLUMN_BLOCKS][8];
            UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8) product[j][e] = 0;
#define MULTIPLY_TERMS(p, q) \
    UNROLLED(j, 2 * COLUMN_BLOCKS) MULTIPLY(bfloat16, product[j], x[p][i], y[j / 2][q][j % 2]);
            MULTIPLY_TERMS(0, 2)
            MULTIPLY_TERMS(2, 0)
            MULTIPLY_TERMS(1, 1)
            MULTIPLY_TERMS(0, 1)
            MULTIPLY_TERMS(1, 0)
            MULTIPLY_TERMS(0, 0)
            UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8) acc[2 * b + i][j][e] += product[j][e];
#endif
        }
    }
}
#endif

#endif
