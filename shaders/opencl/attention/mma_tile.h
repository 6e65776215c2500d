// Tiles of attention's operands, 16-bit elements, for warps that make TILES times 16 rows of COLUMNS scores each with the matrix units of
// lib/mma.h. WARPS warps make a group of ROWS rows; the sums of a block of scores turn into the left operand of the next product in place.

#ifndef POLYHAL_HEAD_FRAGMENTS
#define POLYHAL_HEAD_FRAGMENTS

#ifndef WARPS
#define WARPS 2
#endif
#ifndef TILES
#define TILES 1
#endif
#ifndef COLUMNS
#define COLUMNS 32
#endif
// Column tiles in local memory at the same time: with 2, the next is on its way while one is worked on.
#ifndef STAGES
#define STAGES 2
#endif
// The features of queries and keys, and of values, rounded up to multiples of 16.
#ifndef FEATURES
#define FEATURES 32
#endif
#ifndef VALUES
#define VALUES 32
#endif
// Features lie side by side in whole aligned vectors of eight.
#ifndef WHOLE
#define WHOLE 0
#endif
// The lengths of the results' rows are even.
#ifndef PAIRS
#define PAIRS 0
#endif
// Hopper's way to multiply; TILES is 1, WARPS a multiple of 4, and features are rounded up to 64 or 128.
#ifndef WGMMA_UNITS
#define WGMMA_UNITS 0
#endif
// 3: operands are float32 numbers, each given as three bfloat16 numbers that add up to it. Six of their nine products give float32's
// accuracy, the others being too small to count.
#ifndef PARTS
#define PARTS 1
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#include "lib/dtypes.h"
#include "lib/mma.h"
#include "lib/async_copy.h"
#include "lib/fragment_store.h"

// The twin is compiled much faster as the loops that it is written in.
#if TENSOR_CORES
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("unroll 1")
#endif
#define GROUP (WARP * WARPS)
#define WARP_ROWS (16 * TILES)
#define ROWS (WARP_ROWS * WARPS)
#define BLOCKS (COLUMNS / 16)
// The row of tile t in which a work-item's sum i lies, counted from the warp's first; the column, in block n.
#define TILE_ROW(t, i) (16 * (t) + SUM_ROW(i))
#define BLOCK_COLUMN(n, i) (16 * (n) + SUM_COLUMN(i))
// Of a block's rows, a work-item holds sums of two.
#define HALVES 2
#define HALF_OF(i) ((i) / 2 % 2)

// The parts that product i multiplies, of the left and of the right operand; the smallest products come first.
#if PARTS == 1
#define PART_PRODUCTS 1
#define LEFT_PART(i) 0
#define RIGHT_PART(i) 0
#else
#define PART_PRODUCTS 6
#define LEFT_PART(i) (0x001102 >> 4 * (i) & 15)
#define RIGHT_PART(i) (0x010120 >> 4 * (i) & 15)
#endif
// Words of a tile of `count` rows, all parts together.
#define TILE_WORDS(count, features) (PARTS * (count) * PITCH(features))

#if TENSOR_CORES
#define SCRATCH_WORDS 1
#define SCRATCH_BARRIER()
#else
#define SCRATCH_WORDS (128 * PARTS * TILES * WARPS)
#define SCRATCH_BARRIER() WARP_BARRIER()
#endif

#if TENSOR_CORES
#define ROUNDED_WEIGHT(part, sums, i) as_float((i) % 2 ? (part).r[(i) / 2] & 0xffff0000u : (part).r[(i) / 2] << 16)
#else
#define ROUNDED_WEIGHT(part, sums, i) float_of_bfloat16(bfloat16_of_float((sums)[i]))
#endif

// A block of sums as left operands that add up to it; the twin's lie in `scratch`, 128 words each.
inline void fragments_of_weights(const float *sums, Fragment parts[PARTS], __local uint *scratch) {
#if PARTS == 1
    parts[0] = FRAGMENT_OF_SUMS(DTYPE, sums, scratch);
#else
    float rest[SUMS];
    UNROLL for (uint i = 0; i < SUMS; i++) rest[i] = sums[i];
    UNROLL for (uint p = 0; p < PARTS; p++) {
        parts[p] = FRAGMENT_OF_SUMS(DTYPE, rest, scratch + 128 * p);
        UNROLL for (uint i = 0; i < SUMS; i++) rest[i] -= ROUNDED_WEIGHT(parts[p], rest, i);
    }
#endif
}

#if WGMMA_UNITS
#include "attention/wgmma_tile.h"
#else
// Words between rows.
#define PITCH(features) ((features) / 2 + 4)
// The word of an element of a tile of `count` rows.
#define AT(row, column, count, features) ((row) * PITCH(features) + (column) / 2)
// Block k of the 16 rows from `row` on of a tile of the group's own rows.
#define ROWS_FRAGMENT(memory, part, row, k, features) \
    ALONG_TERMS(DTYPE, (memory) + ((part) * ROWS + (row)) * PITCH(features) + 8 * (k), PITCH(features))
#define SEE_COPIES()
#define END_MULTIPLY(waiting, sums)
#endif
#define HOLD_ROWS(held, memory, first, features)           \
    UNROLL for (uint t_ = 0; t_ < TILES; t_++)  \
        UNROLL for (uint k_ = 0; k_ < (features) / 16; k_++) \
            held[t_][k_] = ROWS_FRAGMENT(memory, 0, (first) + 16 * t_, k_, features)

// Copies rows `first` to `first` + count of an operand, and zeros for those from `limit` on and for features from `length` on.
// Work-items step down columns of pieces, so that addresses only grow by a constant. The parts of a row follow each other.
#if WHOLE
#define PUT_EIGHT(memory, at, name, from, column, known, length) \
    COPY16(&(memory)[at], from, (known) && (column) < (length) ? 16 : 0)
#else
#define PUT_EIGHT(memory, at, name, from, column, known, length)                                      \
    for (uint k_ = 0; k_ < 8; k_++)                                                                   \
        ((__local ushort *)&(memory)[at])[k_] =                                                       \
            (known) && (column) + k_ < (length) ? (from)[k_ * name##_column] : (ushort)0
#endif
#define PIECES(features) ((features) / 8)
#define STEP(features) (GROUP / PIECES(features))
// Where the pieces of a row do not divide the group, some work-items have none.
#define IN_STEP(features) (GROUP % PIECES(features) == 0 || down_ < STEP(features))
#define LOAD_ROWS(memory, features, name, first, count, limit, length)                                              \
    {                                                                                                               \
        const uint down_ = get_local_id(0) / PIECES(features), column_ = get_local_id(0) % PIECES(features) * 8;    \
        __global const ushort *from_ = (__global const ushort *)name + (long)((first) + down_) * name##_row +       \
                                       (long)column_ * name##_column;                                               \
        const long step_ = STEP(features) * name##_row;                                                             \
        UNROLL for (uint i_ = 0; i_ < ((count) + STEP(features) - 1) / STEP(features); i_++) {           \
            const uint row_ = down_ + i_ * STEP(features);                                                          \
            if (((count) % STEP(features) == 0 || row_ < (count)) && IN_STEP(features)) {                           \
                UNROLL for (uint p_ = 0; p_ < PARTS; p_++) {                                             \
                    PUT_EIGHT((memory) + p_ * (count) * PITCH(features), AT(row_, column_, count, features), name,  \
                              from_ + p_ * (name##_row / PARTS), column_, (first) + row_ < (limit), length);        \
                }                                                                                                   \
            }                                                                                                       \
            from_ += step_;                                                                                         \
        }                                                                                                           \
    }

#if !WGMMA_UNITS
// sums += product of a block of rows and one of columns, of all their parts.
#if PARTS == 1
#define MULTIPLY_PARTS(sums, left, right) MULTIPLY_PAIRED(DTYPE, sums, (left)[0], (right)[0])
#else
// The units cut off what does not fit while they add, always towards zero. So that this does not pile up, a product starts at zero and is
// added by an ordinary, rounding addition.
inline void multiply_parts(float *sums, const Fragment left[PARTS], const Fragment right[PARTS]) {
    float product[SUMS] = {0, 0, 0, 0, 0, 0, 0, 0};
    UNROLL for (uint i = 0; i < PART_PRODUCTS; i++) MULTIPLY_PAIRED(DTYPE, product, left[LEFT_PART(i)], right[RIGHT_PART(i)]);
    UNROLL for (uint i = 0; i < SUMS; i++) sums[i] += product[i];
}
#define MULTIPLY_PARTS multiply_parts
#endif

// sums[t][n] = product of the warp's rows, of which fragment(t, k, part) is a block, and block n of the columns in `memory`.
#define MULTIPLY_ROWS(sums, fragment, memory, features)                                                          \
    CLEAR(sums, BLOCKS);                                                                                         \
    UNROLL for (uint k_ = 0; k_ < (features) / 16; k_++) {                                            \
        Fragment left_[TILES][PARTS];                                                                            \
        UNROLL for (uint t_ = 0; t_ < TILES; t_++)                                                    \
            UNROLL for (uint p_ = 0; p_ < PARTS; p_++) left_[t_][p_] = fragment(t_, k_, p_);          \
        UNROLL for (uint n_ = 0; n_ < BLOCKS; n_++) {                                                 \
            Fragment right_[PARTS];                                                                              \
            UNROLL for (uint p_ = 0; p_ < PARTS; p_++) right_[p_] =                                   \
                RIGHT_ALONG_TERMS(DTYPE, (memory) + (p_ * COLUMNS + 16 * n_) * PITCH(features) + 8 * k_, PITCH(features)); \
            UNROLL for (uint t_ = 0; t_ < TILES; t_++) MULTIPLY_PARTS(sums[t_][n_], left_[t_], right_); \
        }                                                                                                        \
    }

// results[t][n] += weights[t][k], rounded unless in parts, times the columns' features in `memory`.
#define BEGIN_GATHER(results, weights, memory, features, scratch)                                                   \
    UNROLL for (uint k_ = 0; k_ < BLOCKS; k_++) {                                                        \
        Fragment left_[TILES][PARTS];                                                                               \
        SCRATCH_BARRIER();                                                                                          \
        UNROLL for (uint t_ = 0; t_ < TILES; t_++)                                                       \
            fragments_of_weights(weights[t_][k_], left_[t_],                                                        \
                                 (scratch) + 128 * PARTS * (get_local_id(0) / WARP * TILES + t_));                  \
        SCRATCH_BARRIER();                                                                                          \
        UNROLL for (uint n_ = 0; n_ < (features) / 16; n_++) {                                           \
            Fragment right_[PARTS];                                                                                 \
            UNROLL for (uint p_ = 0; p_ < PARTS; p_++) right_[p_] =                                      \
                RIGHT_ALONG_PLACES(DTYPE, (memory) + (p_ * COLUMNS + 16 * k_) * PITCH(features) + 8 * n_, PITCH(features)); \
            UNROLL for (uint t_ = 0; t_ < TILES; t_++) MULTIPLY_PARTS(results[t_][n_], left_[t_], right_); \
        }                                                                                                           \
    }
#define END_GATHER(results, features)

#endif

#define CLEAR(sums, blocks)                                    \
    UNROLL for (uint t_ = 0; t_ < TILES; t_++)      \
        UNROLL for (uint n_ = 0; n_ < (blocks); n_++) \
            UNROLL for (uint i_ = 0; i_ < SUMS; i_++) sums[t_][n_][i_] = 0

// Stores results[t][n] times factor(t, half) as rows of `length` features of result `to`, from the warp's first row on, below `limit`.
#define STORE_ROWS(results, factor, to, first, limit, length, features)                                      \
    UNROLL for (uint t_ = 0; t_ < TILES; t_++)                                                    \
        UNROLL for (uint n_ = 0; n_ < (features) / 16; n_++)                                      \
            UNROLL for (uint i_ = 0; i_ < SUMS; i_ += 2) {                                        \
                const uint row_ = (first) + TILE_ROW(t_, i_), column_ = BLOCK_COLUMN(n_, i_);                \
                const float factor_ = factor(t_, HALF_OF(i_));                                               \
                const float one_ = results[t_][n_][i_] * factor_, two_ = results[t_][n_][i_ + 1] * factor_;  \
                const long at_ = row_ * to##_row + column_;                                                  \
                if (PAIRS && row_ < (limit) && column_ < (length)) {                                         \
                    CONCAT(store_two_, OUT_DTYPE)(one_, two_, to + at_);                                         \
                } else if (row_ < (limit)) {                                                                 \
                    if (column_ < (length)) STORE(OUT_DTYPE, one_, to, at_);                                  \
                    if (column_ + 1 < (length)) STORE(OUT_DTYPE, two_, to, at_ + 1);                             \
                }                                                                                            \
            }

// A row's sums lie with four neighbours: the largest or the sum of what they hold, for each of the rows of a work-item.
#if TENSOR_CORES
inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
inline float from_lane(float value, uint distance) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(distance));
    return other;
}
#define OVER_ROWS(name, COMBINE)                                                             \
    inline void name(float values[TILES][HALVES], __local uint *scratch) {                   \
        UNROLL for (uint t = 0; t < TILES; t++)                                   \
            UNROLL for (uint h = 0; h < HALVES; h++) {                            \
                values[t][h] = COMBINE(values[t][h], from_lane(values[t][h], 1));            \
                values[t][h] = COMBINE(values[t][h], from_lane(values[t][h], 2));            \
            }                                                                                \
    }
#else
#define power_of_two exp2
#define OVER_ROWS(name, COMBINE)                                                             \
    inline void name(float values[TILES][HALVES], __local uint *scratch) {                   \
        __local float *all = (__local float *)scratch + get_local_id(0) / 4 * 4;             \
        for (uint t = 0; t < TILES; t++)                                                     \
            for (uint h = 0; h < HALVES; h++) {                                              \
                all[get_local_id(0) % 4] = values[t][h];                                     \
                WARP_BARRIER();                                                              \
                values[t][h] = COMBINE(COMBINE(all[0], all[1]), COMBINE(all[2], all[3]));    \
                WARP_BARRIER();                                                              \
            }                                                                                \
    }
#endif
#define PLUS(a, b) ((a) + (b))
OVER_ROWS(rows_max, fmax)
OVER_ROWS(rows_sum, PLUS)

#endif
