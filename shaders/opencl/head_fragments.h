// Tiles of attention's operands, 16-bit elements, for warps that make TILES times 16 rows of COLUMNS scores each with the matrix units of
// mma.h. WARPS warps make a group of ROWS rows; the sums of a block of scores turn into the left operand of the next product in place.

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
#include "dtypes.h"
#include "mma.h"
#include "copies.h"
#include "pairs.h"

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

#if TENSOR_CORES
#define SCRATCH_WORDS 1
#define SCRATCH_BARRIER()
#else
#define SCRATCH_WORDS (128 * TILES * WARPS)
#define SCRATCH_BARRIER() WARP_BARRIER()
#endif

#if WGMMA_UNITS
#include "head_wgmma.h"
#else
// Words between rows.
#define PITCH(features) ((features) / 2 + 4)
// The word of an element of a tile of `count` rows.
#define AT(row, column, count, features) ((row) * PITCH(features) + (column) / 2)
#define SEE_COPIES()
#endif

// Copies rows `first` to `first` + count of an operand, and zeros for those from `limit` on and for features from `length` on.
// Work-items step down columns of pieces, so that addresses only grow by a constant.
#if WHOLE
#define PUT_EIGHT(memory, at, name, from, column, known, length) \
    COPY16(&memory[at], from, (known) && (column) < (length) ? 16 : 0)
#else
#define PUT_EIGHT(memory, at, name, from, column, known, length)                                      \
    for (uint k_ = 0; k_ < 8; k_++)                                                                   \
        ((__local ushort *)&memory[at])[k_] =                                                         \
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
        _Pragma("unroll") for (uint i_ = 0; i_ < ((count) + STEP(features) - 1) / STEP(features); i_++) {           \
            const uint row_ = down_ + i_ * STEP(features);                                                          \
            if (((count) % STEP(features) == 0 || row_ < (count)) && IN_STEP(features)) {                           \
                PUT_EIGHT(memory, AT(row_, column_, count, features), name, from_, column_, (first) + row_ < (limit), \
                          length);                                                                                  \
            }                                                                                                       \
            from_ += step_;                                                                                         \
        }                                                                                                           \
    }

#if !WGMMA_UNITS
// sums[t][n] += product of the warp's rows, of which fragment(t, k) is a block, and block n of the columns in `memory`.
#define MULTIPLY_ROWS(sums, fragment, memory, features)                                                          \
    _Pragma("unroll") for (uint k_ = 0; k_ < (features) / 16; k_++) {                                            \
        Fragment left_[TILES];                                                                                   \
        _Pragma("unroll") for (uint t_ = 0; t_ < TILES; t_++) left_[t_] = fragment(t_, k_);                      \
        _Pragma("unroll") for (uint n_ = 0; n_ < BLOCKS; n_++) {                                                 \
            const Fragment right_ =                                                                              \
                ALONG_TERMS(DTYPE, (memory) + 16 * n_ * PITCH(features) + 8 * k_, PITCH(features));              \
            _Pragma("unroll") for (uint t_ = 0; t_ < TILES; t_++) MULTIPLY(DTYPE, sums[t_][n_], left_[t_], right_); \
        }                                                                                                        \
    }

// results[t][n] += weights[t][k], rounded, times the columns' features in `memory`. The twin's weights go through `scratch`, 128 words
// for each tile of a warp.
#define GATHER_ROWS(results, weights, memory, features, scratch)                                                    \
    _Pragma("unroll") for (uint k_ = 0; k_ < BLOCKS; k_++) {                                                        \
        Fragment left_[TILES];                                                                                      \
        SCRATCH_BARRIER();                                                                                          \
        _Pragma("unroll") for (uint t_ = 0; t_ < TILES; t_++) left_[t_] =                                           \
            FRAGMENT_OF_SUMS(DTYPE, weights[t_][k_], (scratch) + 128 * (get_local_id(0) / WARP * TILES + t_));      \
        SCRATCH_BARRIER();                                                                                          \
        _Pragma("unroll") for (uint n_ = 0; n_ < (features) / 16; n_++) {                                           \
            const Fragment right_ =                                                                                 \
                ALONG_PLACES(DTYPE, (memory) + 16 * k_ * PITCH(features) + 8 * n_, PITCH(features));                \
            _Pragma("unroll") for (uint t_ = 0; t_ < TILES; t_++) MULTIPLY(DTYPE, results[t_][n_], left_[t_], right_); \
        }                                                                                                           \
    }

#endif

#define CLEAR(sums, blocks)                                    \
    _Pragma("unroll") for (uint t_ = 0; t_ < TILES; t_++)      \
        _Pragma("unroll") for (uint n_ = 0; n_ < (blocks); n_++) \
            _Pragma("unroll") for (uint i_ = 0; i_ < SUMS; i_++) sums[t_][n_][i_] = 0

// Stores results[t][n] times factor(t, half) as rows of `length` features, from the warp's first row on, below `limit`.
#define STORE_ROWS(results, factor, to, first, limit, length, features)                                      \
    _Pragma("unroll") for (uint t_ = 0; t_ < TILES; t_++)                                                    \
        _Pragma("unroll") for (uint n_ = 0; n_ < (features) / 16; n_++)                                      \
            _Pragma("unroll") for (uint i_ = 0; i_ < SUMS; i_ += 2) {                                        \
                const uint row_ = (first) + TILE_ROW(t_, i_), column_ = BLOCK_COLUMN(n_, i_);                \
                const float factor_ = factor(t_, HALF_OF(i_));                                               \
                const float one_ = results[t_][n_][i_] * factor_, two_ = results[t_][n_][i_ + 1] * factor_;  \
                const ulong at_ = (ulong)row_ * (length) + column_;                                          \
                if (PAIRS && row_ < (limit) && column_ < (length)) {                                         \
                    CONCAT(store_two_, DTYPE)(one_, two_, to + at_);                                         \
                } else if (row_ < (limit)) {                                                                 \
                    if (column_ < (length)) STORE(DTYPE, one_, to, at_);                                     \
                    if (column_ + 1 < (length)) STORE(DTYPE, two_, to, at_ + 1);                             \
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
        _Pragma("unroll") for (uint t = 0; t < TILES; t++)                                   \
            _Pragma("unroll") for (uint h = 0; h < HALVES; h++) {                            \
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
