// Register tiles of attention on a CPU. Scores are stored key by key with queries across the lanes of vectors, so that
// the running maximum and sum, the logsumexp and delta of a query are lanes too, and every product reads its operands
// row by row. Only query blocks are transposed, once each.
//
// All operands are rows of reals at distance `pitch`, padded with zeros to whole vectors of features.

#ifndef POLYHAL_ATTENTION_CPU_TILE
#define POLYHAL_ATTENTION_CPU_TILE

#ifndef WIDTH
#define WIDTH 16
#endif
// A register tile: MR keys by the VECTORS vectors of a query block, or MR rows by vectors of features.
#ifndef MR
#define MR 8
#endif
#ifndef VECTORS
#define VECTORS 2
#endif
// Vectors per panel of features, of keys and of values.
#ifndef KEY_VECTORS
#define KEY_VECTORS 2
#endif
#ifndef VALUE_VECTORS
#define VALUE_VECTORS 2
#endif
// Upper bounds of the features of a key and of a value, rounded up to whole vectors.
#ifndef MAX_FEATURES
#define MAX_FEATURES 64
#endif
#ifndef MAX_VALUES
#define MAX_VALUES 64
#endif
// Keys of a key block, a multiple of MR.
#ifndef KEYS
#define KEYS 64
#endif
#define ALIGNED 0
#include "attention/visibility.h"
#include "lib/vectors.h"
#include "lib/exponential.h"

typedef VEC(REAL) V;
#include "lib/lane_reduce.h"
#include "lib/register_transpose.h"
#define QUERIES (VECTORS * WIDTH)
#define PADDED(length) (((length) + WIDTH - 1) / WIDTH * WIDTH)

// transposed[c * QUERIES + r] = rows[r * pitch + c] * factor, for QUERIES rows; rows >= `count` repeat the last one.
FORCE_INLINE void transpose_rows(__global const REAL *rows, const long pitch, const uint count, const uint depth,
                                 const REAL factor, __private REAL *transposed) {
    for (uint r = 0; r < QUERIES; r += WIDTH)
        for (uint c = 0; c < depth; c += WIDTH) {
            V square[WIDTH];
#pragma unroll
            for (uint i = 0; i < WIDTH; i++) square[i] = VECTOR_LOAD(REAL, rows + min(r + i, count - 1) * pitch + c) * factor;
            TRANSPOSE(square)
#pragma unroll
            for (uint i = 0; i < WIDTH; i++) *(__private V *)(transposed + (c + i) * QUERIES + r) = square[i];
        }
}

// tile = rows x transposed: MR rows by QUERIES queries; rows >= `count` repeat the last one.
FORCE_INLINE void multiply_tile(__global const REAL *rows, const long pitch, const uint count,
                                __private const REAL *transposed, const uint depth, __private REAL *tile) {
    V sums[MR][VECTORS];
    __global const REAL *row[MR];
#pragma unroll
    for (uint r = 0; r < MR; r++) {
        row[r] = rows + min(r, count - 1) * pitch;
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
    }
    for (uint c = 0; c < depth; c++) {
        V b[VECTORS];
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) b[v] = *(__private const V *)(transposed + c * QUERIES + v * WIDTH);
#pragma unroll
        for (uint r = 0; r < MR; r++)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) sums[r][v] += (V)(row[r][c]) * b[v];
    }
#pragma unroll
    for (uint r = 0; r < MR; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) *(__private V *)(tile + r * QUERIES + v * WIDTH) = sums[r][v];
}

// Apply the mask to a vector of scores of one key. A mask that is broadcast over queries is read once.
#if MASK == 1
#define MASK_VALUE(query, key) MASK_KEEPS(query, key)
#define MASKED(scores, values) ((values) != (V)(0) ? (scores) : (V)(-INFINITY))
#elif MASK == 2
#define MASK_VALUE(query, key) MASK_BIAS(query, key)
#define MASKED(scores, values) ((scores) + (values))
#endif
#if MASK
#define MASK_SCORES(scores, query, key)                                                                \
    if (key < s) {                                                                                     \
        REAL values_[WIDTH] __attribute__((aligned(64)));                                              \
        if (mask_row) {                                                                                \
            for (uint i_ = 0; i_ < WIDTH; i_++) values_[i_] = MASK_VALUE(min(query + i_, t - 1), key); \
        } else {                                                                                       \
            const REAL value_ = MASK_VALUE(0, key);                                                    \
            for (uint i_ = 0; i_ < WIDTH; i_++) values_[i_] = value_;                                  \
        }                                                                                              \
        scores = MASKED(scores, *(__private const V *)values_);                                        \
    }
#else
#define MASK_SCORES(scores, query, key)
#endif

// Set the masked scores of a tile to minus infinity. Queries past the last one are undefined.
#define MASK_TILE(tile, query, key)                                                         \
    if (!ALL_VISIBLE(query, 0, key, MR)) {                                                  \
        REAL numbers_[WIDTH] __attribute__((aligned(64)));                                  \
        _Pragma("unroll") for (uint i_ = 0; i_ < WIDTH; i_++) numbers_[i_] = i_;            \
        const V lanes_ = *(__private const V *)numbers_;                                    \
        for (uint r_ = 0; r_ < MR; r_++)                                                    \
            _Pragma("unroll") for (uint v_ = 0; v_ < VECTORS; v_++) {                       \
                const uint query_ = (query) + v_ * WIDTH, key_ = (key) + r_;                \
                const int first_ = key_ < s ? (int)FIRST_QUERY(key_) - (int)query_ : WIDTH; \
                __private V *scores_ = (__private V *)((tile) + r_ * QUERIES + v_ * WIDTH); \
                MASK_SCORES(*scores_, query_, key_)                                         \
                *scores_ = lanes_ < (V)((REAL)first_) ? (V)(-INFINITY) : *scores_;          \
            }                                                                               \
    }

// Accumulators are in private memory, in aligned vectors, or anywhere in global memory.
#define SPACE_private __private
#define LOAD_private(p) (*(__private const V *)(p))
#define STORE_private(value, p) (*(__private V *)(p) = (value))
#define SPACE_global __global
#define LOAD_global(p) VECTOR_LOAD(REAL, p)
#define STORE_global(value, p) VECTOR_STORE(REAL, value, p)

// Define a function for acc = acc FACTOR + weights x rows: `acc` has MR rows at distance `acc_pitch`, but only the
// first `count` are read and written; `rows` has `terms` rows of features at distance `pitch`, in panels of PER
// vectors. Weight (term, row) is weights[term * TERM_STEP + row * ROW_STEP].
#define DEFINE_ACCUMULATE(name, SPACE, PER, TERM_STEP, ROW_STEP, FACTOR)                                             \
    FORCE_INLINE void name(__private const REAL *weights, __global const REAL *rows, const long pitch,               \
                           const uint terms, const uint width, const uint count, __private const REAL *factors,      \
                           SPACE_##SPACE REAL *acc, const uint acc_pitch) {                                          \
        for (uint c = 0; c < width; c += PER * WIDTH) {                                                              \
            V sums[MR][PER];                                                                                         \
            _Pragma("unroll") for (uint r = 0; r < MR; r++)                                                          \
                _Pragma("unroll") for (uint v = 0; v < PER; v++)                                                     \
                    sums[r][v] = LOAD_##SPACE(acc + min(r, count - 1) * acc_pitch + c + v * WIDTH) FACTOR;           \
            __global const REAL *row = rows + c;                                                                     \
            __private const REAL *weight = weights;                                                                  \
            for (uint term = 0; term < terms; term++) {                                                              \
                V b[PER];                                                                                            \
                _Pragma("unroll") for (uint v = 0; v < PER; v++) b[v] = VECTOR_LOAD(REAL, row + v * WIDTH);          \
                _Pragma("unroll") for (uint r = 0; r < MR; r++)                                                      \
                    _Pragma("unroll") for (uint v = 0; v < PER; v++) sums[r][v] += (V)(weight[r * ROW_STEP]) * b[v]; \
                row += pitch;                                                                                        \
                weight += TERM_STEP;                                                                                 \
            }                                                                                                        \
            _Pragma("unroll") for (uint r = 0; r < MR; r++)                                                          \
                if (r < count)                                                                                       \
                    _Pragma("unroll") for (uint v = 0; v < PER; v++)                                                 \
                        STORE_##SPACE(sums[r][v], acc + r * acc_pitch + c + v * WIDTH);                              \
        }                                                                                                            \
    }

// Store the first `length` features of an accumulator row, each times `factor`.
#define STORE_ROW(D, row, length, factor, out)                               \
    {                                                                        \
        uint c_ = 0;                                                         \
        for (; c_ + WIDTH <= (length); c_ += WIDTH) {                        \
            const V values_ = *(__private const V *)((row) + c_) * (factor); \
            STOREV(D, values_, (out) + c_);                                  \
        }                                                                    \
        for (; c_ < (length); c_++) STORE(D, (row)[c_] * (factor), out, c_); \
    }

#endif
