// Tiles of attention on matrix units: each warp makes ROW_TILES * 16 rows by COLUMNS scores, and WARPS warps share a group
// of ROWS rows. Operands are 16-bit elements in local memory; see lib/mma.h for fragments. The accumulators of the scores
// become the left operand of the next product without leaving registers.

#ifndef POLYHAL_ATTENTION_MMA_TILE
#define POLYHAL_ATTENTION_MMA_TILE

#ifndef WARPS
#define WARPS 2
#endif
#ifndef ROW_TILES
#define ROW_TILES 1
#endif
#ifndef COLUMNS
#define COLUMNS 32
#endif
// Column blocks in local memory at once (pipeline stages). 2 is a double buffer: the next block is copied while one is
// used.
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
// 1: features are contiguous, in whole aligned vectors of eight.
#ifndef ALIGNED_ROWS
#define ALIGNED_ROWS 0
#endif
// 1: rows of the results begin at even offsets and have an even length.
#ifndef PAIRS
#define PAIRS 0
#endif
// Multiply by Hopper's wgmma; ROW_TILES is 1, WARPS a multiple of 4, and features are rounded up to 64 or 128.
#ifndef USE_WGMMA
#define USE_WGMMA 0
#endif
// Terms per element. 3 (bf16x3): each float32 operand is passed as three bfloat16 terms that add up to it. Six of
// the nine products of terms give float32's accuracy; the others are too small to count.
#ifndef BF16_TERMS
#define BF16_TERMS 1
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#include "lib/dtypes.h"
#include "lib/mma.h"
#include "lib/async_copy.h"
#include "lib/fragment_store.h"
#include "attention/warp.h"

// The portable fallback compiles much faster if its loops are not unrolled.
#if TENSOR_CORES
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("unroll 1")
#endif
#define GROUP (WARP * WARPS)
#define WARP_ROWS (16 * ROW_TILES)
#define ROWS (WARP_ROWS * WARPS)
#define BLOCKS (COLUMNS / 16)
// The row, within the warp's, of a work-item's accumulator i of row tile t; its column, in column tile n.
#define TILE_ROW(t, i) (16 * (t) + SUM_ROW(i))
#define TILE_COLUMN(n, i) (16 * (n) + SUM_COLUMN(i))
// A work-item holds accumulators of two rows of a tile: of the upper and of the lower half.
#define HALVES 2
#define HALF_OF(i) ((i) / 2 % 2)

// The terms that product i multiplies, of the left and of the right operand, smallest products first.
#if BF16_TERMS == 1
#define TERM_PRODUCTS 1
#define LEFT_TERM(i) 0
#define RIGHT_TERM(i) 0
#else
#define TERM_PRODUCTS 6
#define LEFT_TERM(i) (0x001102 >> 4 * (i) & 15)
#define RIGHT_TERM(i) (0x010120 >> 4 * (i) & 15)
#endif
// Words of a block of `count` rows, including all terms.
#define BLOCK_WORDS(count, features) (BF16_TERMS * (count) * PITCH(features))

#if TENSOR_CORES
#define SCRATCH_WORDS 1
#define SCRATCH_BARRIER()
#else
#define SCRATCH_WORDS (128 * BF16_TERMS * ROW_TILES * WARPS)
#define SCRATCH_BARRIER() WARP_BARRIER()
#endif

#if TENSOR_CORES
#define ROUNDED_WEIGHT(term, sums, i) as_float((i) % 2 ? (term).r[(i) / 2] & 0xffff0000u : (term).r[(i) / 2] << 16)
#else
#define ROUNDED_WEIGHT(term, sums, i) float_of_bfloat16(bfloat16_of_float((sums)[i]))
#endif

// Convert a tile of accumulators to left operands, one per term, that add up to it. The fallback stores them in
// `scratch`, 128 words each.
static inline void fragments_of_weights(const float *sums, Fragment terms[BF16_TERMS], __local uint *scratch) {
#if BF16_TERMS == 1
    terms[0] = FRAGMENT_OF_SUMS(DTYPE, sums, scratch);
#else
    float rest[SUMS];
    UNROLL for (uint i = 0; i < SUMS; i++) rest[i] = sums[i];
    UNROLL for (uint p = 0; p < BF16_TERMS; p++) {
        terms[p] = FRAGMENT_OF_SUMS(DTYPE, rest, scratch + 128 * p);
        UNROLL for (uint i = 0; i < SUMS; i++) rest[i] -= ROUNDED_WEIGHT(terms[p], rest, i);
    }
#endif
}

#if USE_WGMMA
#include "attention/wgmma_tile.h"
#else
// Words between rows.
#define PITCH(features) ((features) / 2 + 4)
// The word of an element of a block of `count` rows.
#define WORD_AT(row, column, count, features) ((row) * PITCH(features) + (column) / 2)
// K-step k of rows `row` to `row` + 15 of a block of the group's own rows.
#define ROWS_FRAGMENT(memory, term, row, k, features) \
    A_FRAGMENT_K_MAJOR(DTYPE, (memory) + ((term) * ROWS + (row)) * PITCH(features) + 8 * (k), PITCH(features))
#define FENCE_COPIES()
#define END_MULTIPLY(waiting, sums)
#endif
#define LOAD_FRAGMENTS(fragments, memory, first, features)   \
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)           \
        UNROLL for (uint k_ = 0; k_ < (features) / 16; k_++) \
            fragments[t_][k_] = ROWS_FRAGMENT(memory, 0, (first) + 16 * t_, k_, features)

// Copy rows `first` to `first` + count of an operand to local memory, with zeros for rows >= `limit` and features >=
// `length`. A work-item copies one column of vectors, so its addresses advance by a constant. The terms of a row follow
// one another.
#if ALIGNED_ROWS
#define COPY_VEC8(memory, at, name, from, column, exists, length) \
    COPY16(&(memory)[at], from, (exists) && (column) < (length) ? 16 : 0)
#else
#define COPY_VEC8(memory, at, name, from, column, exists, length) \
    for (uint k_ = 0; k_ < 8; k_++)                               \
        ((__local ushort *)&(memory)[at])[k_] =                   \
            (exists) && (column) + k_ < (length) ? (from)[k_ * name##_column] : (ushort)0
#endif
#define ROW_VECTORS(features) ((features) / 8)
#define ROW_STEP(features) (GROUP / ROW_VECTORS(features))
// If the number of vectors per row does not divide the group size, some work-items are idle.
#define HAS_ROW(features) (GROUP % ROW_VECTORS(features) == 0 || row0_ < ROW_STEP(features))
#define LOAD_ROWS(memory, features, name, first, count, limit, length)                                                  \
    {                                                                                                                   \
        const uint row0_ = get_local_id(0) / ROW_VECTORS(features);                                                     \
        const uint column_ = get_local_id(0) % ROW_VECTORS(features) * 8;                                               \
        __global const ushort *from_ = (__global const ushort *)name + (long)((first) + row0_) * name##_row +           \
                                       (long)column_ * name##_column;                                                   \
        const long step_ = ROW_STEP(features) * name##_row;                                                             \
        UNROLL for (uint i_ = 0; i_ < ((count) + ROW_STEP(features) - 1) / ROW_STEP(features); i_++) {                  \
            const uint row_ = row0_ + i_ * ROW_STEP(features);                                                          \
            if (((count) % ROW_STEP(features) == 0 || row_ < (count)) && HAS_ROW(features)) {                           \
                UNROLL for (uint p_ = 0; p_ < BF16_TERMS; p_++) {                                                       \
                    COPY_VEC8((memory) + p_ * (count) * PITCH(features), WORD_AT(row_, column_, count, features), name, \
                              from_ + p_ * (name##_row / BF16_TERMS), column_, (first) + row_ < (limit), length);       \
                }                                                                                                       \
            }                                                                                                           \
            from_ += step_;                                                                                             \
        }                                                                                                               \
    }

#if !USE_WGMMA
// sums += product of a tile of rows and a tile of columns, over all their terms.
#if BF16_TERMS == 1
#define MULTIPLY_TERMS(sums, left, right) MULTIPLY(DTYPE, sums, (left)[0], (right)[0])
#else
// The units truncate towards zero as they add. To keep this from accumulating, a product starts at zero and is added by an
// ordinary, rounding addition.
static inline void multiply_terms(float *sums, const Fragment left[BF16_TERMS], const Fragment right[BF16_TERMS]) {
    float product[SUMS] = {0, 0, 0, 0, 0, 0, 0, 0};
    UNROLL for (uint i = 0; i < TERM_PRODUCTS; i++)
        MULTIPLY(DTYPE, product, left[LEFT_TERM(i)], right[RIGHT_TERM(i)]);
    UNROLL for (uint i = 0; i < SUMS; i++) sums[i] += product[i];
}
#define MULTIPLY_TERMS multiply_terms
#endif

// sums[t][n] = product of the warp's rows and column tile n of `memory`; fragment(t, k, term) is a tile of the warp's
// rows.
#define MULTIPLY_ROWS(sums, fragment, memory, features)                                                                    \
    CLEAR(sums, BLOCKS);                                                                                                   \
    UNROLL for (uint k_ = 0; k_ < (features) / 16; k_++) {                                                                 \
        Fragment left_[ROW_TILES][BF16_TERMS];                                                                             \
        UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)                                                                     \
            UNROLL for (uint p_ = 0; p_ < BF16_TERMS; p_++) left_[t_][p_] = fragment(t_, k_, p_);                          \
        UNROLL for (uint n_ = 0; n_ < BLOCKS; n_++) {                                                                      \
            Fragment right_[BF16_TERMS];                                                                                   \
            UNROLL for (uint p_ = 0; p_ < BF16_TERMS; p_++) right_[p_] =                                                   \
                B_FRAGMENT_K_MAJOR(DTYPE, (memory) + (p_ * COLUMNS + 16 * n_) * PITCH(features) + 8 * k_, PITCH(features)); \
            UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++) MULTIPLY_TERMS(sums[t_][n_], left_[t_], right_);                \
        }                                                                                                                  \
    }

// acc[t][n] += weights[t][k], rounded if there is one term, times the features of the columns in `memory`.
#define BEGIN_ACCUMULATE(acc, weights, memory, features, scratch)                                                           \
    UNROLL for (uint k_ = 0; k_ < BLOCKS; k_++) {                                                                           \
        Fragment left_[ROW_TILES][BF16_TERMS];                                                                              \
        SCRATCH_BARRIER();                                                                                                  \
        UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)                                                                      \
            fragments_of_weights(weights[t_][k_], left_[t_],                                                                \
                                 (scratch) + 128 * BF16_TERMS * (get_local_id(0) / WARP * ROW_TILES + t_));                 \
        SCRATCH_BARRIER();                                                                                                  \
        UNROLL for (uint n_ = 0; n_ < (features) / 16; n_++) {                                                              \
            Fragment right_[BF16_TERMS];                                                                                    \
            UNROLL for (uint p_ = 0; p_ < BF16_TERMS; p_++) right_[p_] =                                                    \
                B_FRAGMENT_MN_MAJOR(DTYPE, (memory) + (p_ * COLUMNS + 16 * k_) * PITCH(features) + 8 * n_, PITCH(features)); \
            UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++) MULTIPLY_TERMS(acc[t_][n_], left_[t_], right_);                  \
        }                                                                                                                   \
    }
#define END_ACCUMULATE(acc, features)

#endif

// The bits of a packed mask for the warp's rows and a block of columns, whose first one is a multiple of 32. Rows of the mask
// consist of whole blocks. Each work-item needs every second bit of a quarter; its first one is moved to bit 0.
#if MASK == 3
#if COLUMNS % 32
#error "a block has whole words of a packed mask"
#endif
#define LOAD_BITS(bits, first_row, first_column, limit)                                                             \
    uint bits[ROW_TILES][HALVES][COLUMNS / 32];                                                                     \
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)                                                                  \
        UNROLL for (uint h_ = 0; h_ < HALVES; h_++)                                                                 \
            UNROLL for (uint w_ = 0; w_ < COLUMNS / 32; w_++) {                                                     \
                const uint row_ = min((uint)((first_row) + TILE_ROW(t_, 2 * h_)), (limit)-1);                               \
                bits[t_][h_][w_] = mask[row_ * mask_row + (first_column) / 32 + w_] >> SUM_COLUMN(0);               \
            }
#define BIT(bits, t, n, i) (bits[t][HALF_OF(i)][(n) / 2] >> (16 * ((n) % 2) + (i) % 2 + (i) / 4 * 8) & 1)
#else
#define LOAD_BITS(bits, first_row, first_column, limit)
#endif

#define CLEAR(sums, blocks)                           \
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)    \
        UNROLL for (uint n_ = 0; n_ < (blocks); n_++) \
            UNROLL for (uint i_ = 0; i_ < SUMS; i_++) sums[t_][n_][i_] = 0

// Store acc[t][n] times factor(t, half) as rows of `length` features of result `to`, beginning with the warp's first
// row, for rows < `limit`.
#define STORE_ROWS(acc, factor, to, first, limit, length, features)                                 \
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)                                                  \
        UNROLL for (uint n_ = 0; n_ < (features) / 16; n_++)                                        \
            UNROLL for (uint i_ = 0; i_ < SUMS; i_ += 2) {                                          \
                const uint row_ = (first) + TILE_ROW(t_, i_), column_ = TILE_COLUMN(n_, i_);        \
                const float factor_ = factor(t_, HALF_OF(i_));                                      \
                const float one_ = acc[t_][n_][i_] * factor_, two_ = acc[t_][n_][i_ + 1] * factor_; \
                const long at_ = row_ * to##_row + column_;                                         \
                if (PAIRS && row_ < (limit) && column_ < (length)) {                                \
                    CONCAT(store_two_, OUT_DTYPE)(one_, two_, to + at_);                            \
                } else if (row_ < (limit)) {                                                        \
                    if (column_ < (length)) STORE(OUT_DTYPE, one_, to, at_);                        \
                    if (column_ + 1 < (length)) STORE(OUT_DTYPE, two_, to, at_ + 1);                \
                }                                                                                   \
            }

// Four neighbouring lanes hold the accumulators of a row. Reduce one number per row over them.
#if TENSOR_CORES
#define DEFINE_ROW_REDUCTION(name, COMBINE)                                         \
    static inline void name(float values[ROW_TILES][HALVES], __local uint *scratch) { \
        UNROLL for (uint t = 0; t < ROW_TILES; t++)                                 \
            UNROLL for (uint h = 0; h < HALVES; h++) {                              \
                values[t][h] = COMBINE(values[t][h], shuffle_xor(values[t][h], 1)); \
                values[t][h] = COMBINE(values[t][h], shuffle_xor(values[t][h], 2)); \
            }                                                                       \
    }
#else
#define DEFINE_ROW_REDUCTION(name, COMBINE)                                                   \
    static inline void name(float values[ROW_TILES][HALVES], __local uint *scratch) {         \
        __local float *four = (__local float *)scratch + get_local_id(0) / 4 * 4;             \
        for (uint t = 0; t < ROW_TILES; t++)                                                  \
            for (uint h = 0; h < HALVES; h++) {                                               \
                four[get_local_id(0) % 4] = values[t][h];                                     \
                WARP_BARRIER();                                                               \
                values[t][h] = COMBINE(COMBINE(four[0], four[1]), COMBINE(four[2], four[3])); \
                WARP_BARRIER();                                                               \
            }                                                                                 \
    }
#endif
#define PLUS(a, b) ((a) + (b))
DEFINE_ROW_REDUCTION(reduce_rows_max, fmax)
DEFINE_ROW_REDUCTION(reduce_rows_sum, PLUS)

#endif
