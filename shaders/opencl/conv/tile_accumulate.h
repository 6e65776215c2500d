// A tile of ROWS x COLUMNS results that a group of work-items adds up from strips of DEPTH terms staged in local memory.
//
// A strip of an operand holds term after term, a pitch apart, the tile's rows or columns side by side. Every 32 work-items make a
// part of 32 * ROW_BLOCKS rows and 32 * COLUMN_BLOCKS columns. Work-item (down, along) of 8 x 4 holds rows 32 * b + 4 * down
// + 0..3 and columns 32 * b + 8 * along + 0..7 of every block b.
//
// PARTS 0 multiplies REAL numbers. Otherwise tensor cores multiply HALF_TYPE numbers (float16 or bfloat16) in strips of 16 terms:
// with PARTS 1 operands rounded to these, and with PARTS 3 the three bfloat16 numbers that float32 is the sum of, whose six
// largest products are as exact as a float32 product; three products of TF32 numbers would be too, but on an H200 this kernel
// got 115 TFLOP/s of those and was slower. With LEFT_PACKED the left operand is staged as such parts: strips of
// words, each of which holds two neighbouring terms of a row. Rows and columns are dealt out to the blocks of the tensor cores
// in such an order that both ways give a work-item the same sums, so that multiply_strip is the others' twin where
// TENSOR_CORES is 0, and that fragments are read as whole quads without bank conflicts.

#ifndef POLYHAL_TILE_SUMS
#define POLYHAL_TILE_SUMS

#ifndef PARTS
#define PARTS 0
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
#include "lib/dtypes.h"
#include "lib/mma.h"

#define GROUP (ROWS * COLUMNS / (32 * ROW_BLOCKS * COLUMN_BLOCKS))
#define WARPS_ACROSS (COLUMNS / (32 * COLUMN_BLOCKS))
#define RIGHT_PITCH (COLUMNS + 4)
#define RIGHT_STRIP (DEPTH * RIGHT_PITCH)
#if LEFT_PACKED
#define LEFT uint
#define LEFT_LINES (PARTS * DEPTH / 2)
#define LEFT_PITCH (ROWS + 8)
#else
#define LEFT REAL
#define LEFT_LINES DEPTH
#define LEFT_PITCH (ROWS + 4)
#endif
#define LEFT_STRIP (LEFT_LINES * LEFT_PITCH)
typedef CONCAT(REAL, 4) Quad;
typedef CONCAT(LEFT, 4) LeftQuad;

#define UNROLLED(i, n) _Pragma("unroll") for (uint i = 0; i < (n); i++)
#define MY_ROWS (4 * ROW_BLOCKS)
#define MY_COLUMNS (8 * COLUMN_BLOCKS)
// The sum of the work-item's row r and column c, where tensor cores want it.
#define SUM(r, c) sums[(r) / 2][(c) / 8 * 2 + (c) % 4 / 2][(c) % 2 * 4 + (r) % 2 * 2 + (c) / 4 % 2]
#define DECLARE_SUMS REAL sums[2 * ROW_BLOCKS][2 * COLUMN_BLOCKS][8];
#define CLEAR_SUMS UNROLLED(i, 2 * ROW_BLOCKS) UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8) sums[i][j][e] = 0;

#define MY_LANE (get_local_id(0) % 32)
#define WARP_ROW (get_local_id(0) / 32 / WARPS_ACROSS * 32 * ROW_BLOCKS)
#define WARP_COLUMN (get_local_id(0) / 32 % WARPS_ACROSS * 32 * COLUMN_BLOCKS)
#define ROW_OF(r) (WARP_ROW + (r) / 4 * 32 + MY_LANE / 4 * 4 + (r) % 4)
#define COLUMN_OF(c) (WARP_COLUMN + (c) / 8 * 32 + MY_LANE % 4 * 8 + (c) % 8)

#define SPREAD(to, q) \
    (to)[0] = (q).s0; \
    (to)[1] = (q).s1; \
    (to)[2] = (q).s2; \
    (to)[3] = (q).s3;

#if LEFT_PACKED
inline float unpacked_float16(uint word, uint second) {
    const uint bits = second ? word >> 16 : word & 0xffff;
    return vload_half(0, (const half *)&bits);
}
inline float unpacked_bfloat16(uint word, uint second) { return as_float(second ? word & 0xffff0000 : word << 16); }

inline Quad left_quad(__local const uint *left, uint term) {
    Quad q = 0;
    UNROLLED(part, PARTS) {
        const uint4 words = *(__local const uint4 *)(left + (part * DEPTH / 2 + term / 2) * LEFT_PITCH);
        q += (Quad)(CONCAT(unpacked_, HALF_TYPE)(words.s0, term % 2), CONCAT(unpacked_, HALF_TYPE)(words.s1, term % 2),
                    CONCAT(unpacked_, HALF_TYPE)(words.s2, term % 2), CONCAT(unpacked_, HALF_TYPE)(words.s3, term % 2));
    }
    return q;
}
#else
inline Quad left_quad(__local const REAL *left, uint term) { return *(__local const Quad *)(left + term * LEFT_PITCH); }
#endif

inline void multiply_strip(REAL sums[2 * ROW_BLOCKS][2 * COLUMN_BLOCKS][8], __local const LEFT *left,
                           __local const REAL *right) {
    left += ROW_OF(0);
    right += COLUMN_OF(0);
    UNROLLED(term, DEPTH) {
        REAL x[MY_ROWS], y[MY_COLUMNS];
        UNROLLED(b, ROW_BLOCKS) {
            const Quad q = left_quad(left + 32 * b, term);
            SPREAD(x + 4 * b, q)
        }
        UNROLLED(b, 2 * COLUMN_BLOCKS) {
            const Quad q = *(__local const Quad *)(right + term * RIGHT_PITCH + b / 2 * 32 + b % 2 * 4);
            SPREAD(y + 4 * b, q)
        }
        UNROLLED(r, MY_ROWS) UNROLLED(c, MY_COLUMNS) SUM(r, c) += x[r] * y[c];
    }
}

#if TENSOR_CORES
#define PACKED_bfloat16(low, high) bfloats_of_floats(low, high)
#define PACKED_float16(low, high) halves_of_floats(low, high)

// Two terms of a place as words of two numbers each, one for every part.
inline void split_pair(uint words[PARTS], float low, float high) {
    UNROLLED(part, PARTS) {
        words[part] = CONCAT(PACKED_, HALF_TYPE)(low, high);
        low -= as_float(words[part] << 16);
        high -= as_float(words[part] & 0xffff0000);
    }
}

// The parts of two fragments of 16 places from a block of 32 by 16 terms. A work-item reads terms 2 * along + 0, 1, 8 and 9; the
// halves of the first two come first in a fragment, places 0 and 1 of a quad in the first fragment.
inline void split_block(Fragment to[PARTS][2], __local const float *from, const uint pitch) {
    float terms[4][4];
    UNROLLED(i, 4) {
        const float4 q = *(__local const float4 *)(from + (i / 2 * 8 + i % 2) * pitch);
        SPREAD(terms[i], q)
    }
    UNROLLED(place, 4) UNROLLED(half_, 2) {
        uint words[PARTS];
        split_pair(words, terms[2 * half_][place], terms[2 * half_ + 1][place]);
        UNROLLED(part, PARTS) to[part][place / 2].r[half_ * 2 + place % 2] = words[part];
    }
}

inline void unpack_block(Fragment to[PARTS][2], __local const uint *from) {
    UNROLLED(part, PARTS) UNROLLED(half_, 2) {
        const uint4 q = *(__local const uint4 *)(from + (part * DEPTH / 2 + half_ * 4) * LEFT_PITCH);
        to[part][0].r[half_ * 2] = q.s0;
        to[part][0].r[half_ * 2 + 1] = q.s1;
        to[part][1].r[half_ * 2] = q.s2;
        to[part][1].r[half_ * 2 + 1] = q.s3;
    }
}

inline void multiply_on_tensor_cores(float sums[2 * ROW_BLOCKS][2 * COLUMN_BLOCKS][8], __local const LEFT *left,
                                     __local const float *right) {
    const uint along = MY_LANE % 4, down = MY_LANE / 4 * 4;
    Fragment y[COLUMN_BLOCKS][PARTS][2];
    UNROLLED(b, COLUMN_BLOCKS)
        split_block(y[b], right + 2 * along * RIGHT_PITCH + WARP_COLUMN + 32 * b + down, RIGHT_PITCH);
    UNROLLED(b, ROW_BLOCKS) {
        Fragment x[PARTS][2];
#if LEFT_PACKED
        unpack_block(x, left + along * LEFT_PITCH + WARP_ROW + 32 * b + down);
#else
        split_block(x, left + 2 * along * LEFT_PITCH + WARP_ROW + 32 * b + down, LEFT_PITCH);
#endif
        UNROLLED(i, 2) {
#if PARTS == 1
            UNROLLED(j, 2 * COLUMN_BLOCKS) MULTIPLY(HALF_TYPE, sums[2 * b + i][j], x[0][i], y[j / 2][0][j % 2]);
#else
            // The units cut off what does not fit while they add, so that few terms are added up there; smallest products first.
            // Each product of a block waits for the one before, therefore all blocks take turns.
            float product[2 * COLUMN_BLOCKS][8];
            UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8) product[j][e] = 0;
#define MULTIPLY_PARTS(p, q) \
    UNROLLED(j, 2 * COLUMN_BLOCKS) MULTIPLY(bfloat16, product[j], x[p][i], y[j / 2][q][j % 2]);
            MULTIPLY_PARTS(0, 2)
            MULTIPLY_PARTS(2, 0)
            MULTIPLY_PARTS(1, 1)
            MULTIPLY_PARTS(0, 1)
            MULTIPLY_PARTS(1, 0)
            MULTIPLY_PARTS(0, 0)
            UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8) sums[2 * b + i][j][e] += product[j][e];
#endif
        }
    }
}
#endif

#endif
