// Tiles of attention's operands in local memory, for groups that make a tile of ROWS by COLUMNS scores.
//
// A group is LANES_X by LANES_Y work-items, and each holds a register tile of ITEM_ROWS by ITEM_COLUMNS scores: work-item
// (y, x) has rows y + i * LANES_Y and columns x + j * LANES_X. The distance of rows in local memory, PITCH(features),
// is an odd number of vectors of four, so that eight consecutive rows are in different banks.

#ifndef POLYHAL_ATTENTION_LOCAL_TILE
#define POLYHAL_ATTENTION_LOCAL_TILE

#ifndef ROWS
#define ROWS 32
#endif
#ifndef COLUMNS
#define COLUMNS 32
#endif
#ifndef ITEM_ROWS
#define ITEM_ROWS 4
#endif
#ifndef ITEM_COLUMNS
#define ITEM_COLUMNS 4
#endif
// The features of queries and keys, and of values, rounded up to multiples of 8.
#ifndef FEATURES
#define FEATURES 32
#endif
#ifndef VALUES
#define VALUES 32
#endif
// 1: features are contiguous, in whole aligned vectors of four.
#ifndef ALIGNED_ROWS
#define ALIGNED_ROWS 0
#endif
// 1: the storage type is REAL.
#ifndef STORED_AS_REAL
#define STORED_AS_REAL 1
#endif
#define LANES_X (COLUMNS / ITEM_COLUMNS)
#define LANES_Y (ROWS / ITEM_ROWS)
#define GROUP (LANES_X * LANES_Y)
#define LANE_X (get_local_id(0) % LANES_X)
#define LANE_Y (get_local_id(0) / LANES_X)
#define PITCH(features) ((features) + 4)
#define WEIGHTS_PITCH (COLUMNS + 4)
// Vectors of features that a work-item accumulates per row.
#define VECTORS(features) (((features) / 4 + LANES_X - 1) / LANES_X)

#define WIDTH 4
#define ALIGNED 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/async_copy.h"
#include "attention/warp.h"

typedef VEC(REAL) Vec4;
#define VEC4_AT(memory, at) (*(__local Vec4 *)&(memory)[at])

// Copy rows `first` to `first` + count of an operand to local memory, with zeros for rows >= `limit` and features >=
// `length`. A work-item copies one column of vectors, so its addresses advance by a constant.
#if ALIGNED_ROWS && STORED_AS_REAL && TENSOR_CORES
#define COPY_VEC4(D, memory, at, name, from, column, exists, length) \
    COPY16(&memory[at], from, (exists) && (column) < (length) ? 16 : 0)
#elif ALIGNED_ROWS
#define COPY_VEC4(D, memory, at, name, from, column, exists, length) \
    VEC4_AT(memory, at) = (exists) && (column) < (length) ? LOADV(D, from) : (Vec4)(0)
#else
#define COPY_VEC4(D, memory, at, name, from, column, exists, length) \
    for (uint k_ = 0; k_ < 4; k_++)                                  \
        memory[(at) + k_] = (exists) && (column) + k_ < (length) ? LOAD(D, from, k_ * name##_column) : (REAL)0
#endif
#define ROW_VECTORS(features) ((features) / 4)
#define ROW_STEP(features) (GROUP / ROW_VECTORS(features))
// If the number of vectors per row does not divide the group size, some work-items are idle.
#define HAS_ROW(features) (GROUP % ROW_VECTORS(features) == 0 || row0_ < ROW_STEP(features))
#define LOAD_ROWS(D, memory, features, name, first, count, limit, length)                                               \
    {                                                                                                                   \
        const uint row0_ = get_local_id(0) / ROW_VECTORS(features);                                                     \
        const uint column_ = get_local_id(0) % ROW_VECTORS(features) * 4;                                               \
        __global const STORAGE(D) *from_ = name + (long)((first) + row0_) * name##_row + (long)column_ * name##_column; \
        const long step_ = ROW_STEP(features) * name##_row;                                                             \
        _Pragma("unroll") for (uint i_ = 0; i_ < ((count) + ROW_STEP(features) - 1) / ROW_STEP(features); i_++) {       \
            const uint row_ = row0_ + i_ * ROW_STEP(features);                                                          \
            if (((count) % ROW_STEP(features) == 0 || row_ < (count)) && HAS_ROW(features)) {                           \
                COPY_VEC4(D, memory, row_ * PITCH(features) + column_, name, from_, column_, (first) + row_ < (limit),  \
                          length);                                                                                      \
            }                                                                                                           \
            from_ += step_;                                                                                             \
        }                                                                                                               \
    }

// sums[i][j] = product of row y + i * LANES_Y of `left` and row x + j * LANES_X of `right`.
static inline void multiply_rows(__local const REAL *left, __local const REAL *right, const uint features,
                                 REAL sums[ITEM_ROWS][ITEM_COLUMNS]) {
    left += LANE_Y * PITCH(features);
    right += LANE_X * PITCH(features);
#pragma unroll
    for (uint i = 0; i < ITEM_ROWS; i++)
#pragma unroll
        for (uint j = 0; j < ITEM_COLUMNS; j++) sums[i][j] = 0;
#pragma unroll 1
    for (uint c = 0; c < features; c += 4) {
        Vec4 y[ITEM_COLUMNS];
#pragma unroll
        for (uint j = 0; j < ITEM_COLUMNS; j++) y[j] = VEC4_AT(right, j * LANES_X * PITCH(features) + c);
#pragma unroll
        for (uint i = 0; i < ITEM_ROWS; i++) {
            const Vec4 x = VEC4_AT(left, i * LANES_Y * PITCH(features) + c);
#pragma unroll
            for (uint j = 0; j < ITEM_COLUMNS; j++) sums[i][j] += x.s0 * y[j].s0;
#pragma unroll
            for (uint j = 0; j < ITEM_COLUMNS; j++) sums[i][j] += x.s1 * y[j].s1;
#pragma unroll
            for (uint j = 0; j < ITEM_COLUMNS; j++) sums[i][j] += x.s2 * y[j].s2;
#pragma unroll
            for (uint j = 0; j < ITEM_COLUMNS; j++) sums[i][j] += x.s3 * y[j].s3;
        }
    }
}

// Store weights[i][j] in the local memory that ACCUMULATE_ROWS reads.
static inline void store_weights(const REAL weights[ITEM_ROWS][ITEM_COLUMNS], __local REAL *memory) {
#pragma unroll
    for (uint i = 0; i < ITEM_ROWS; i++)
#pragma unroll
        for (uint j = 0; j < ITEM_COLUMNS; j++)
            memory[(LANE_Y + i * LANES_Y) * WEIGHTS_PITCH + LANE_X + j * LANES_X] = weights[i][j];
}

// acc[i][j] += the weights of row y + i * LANES_Y times vector x + j * LANES_X of the rows of `right`. Work-items of one row
// are for GPUs with few registers: they read a row of `right` at a time.
#if ITEM_ROWS == 1
#define ACCUMULATE_ROWS(acc, memory, right, features)                                                      \
    {                                                                                                      \
        __local const REAL *weights_ = (memory) + LANE_Y * WEIGHTS_PITCH;                                  \
        _Pragma("unroll 1") for (uint c_ = 0; c_ < COLUMNS; c_++) {                                        \
            _Pragma("unroll") for (uint j_ = 0; j_ < VECTORS(features); j_++) {                            \
                const uint at_ = min((uint)(LANE_X + j_ * LANES_X), (uint)((features) / 4 - 1)) * 4;       \
                acc[0][j_] += weights_[c_] * VEC4_AT(right, c_ * PITCH(features) + at_);                   \
            }                                                                                              \
        }                                                                                                  \
    }
#else
#define ACCUMULATE_ROWS(acc, memory, right, features)                                                      \
    {                                                                                                      \
        __local const REAL *weights_ = (memory) + LANE_Y * WEIGHTS_PITCH;                                  \
        _Pragma("unroll 1") for (uint c_ = 0; c_ < COLUMNS; c_ += 4) {                                     \
            Vec4 x_[ITEM_ROWS];                                                                            \
            _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++)                                      \
                x_[i_] = VEC4_AT(weights_, i_ * LANES_Y * WEIGHTS_PITCH + c_);                             \
            _Pragma("unroll") for (uint j_ = 0; j_ < VECTORS(features); j_++) {                            \
                const uint at_ = min((uint)(LANE_X + j_ * LANES_X), (uint)((features) / 4 - 1)) * 4;       \
                __local const REAL *y_ = (right) + c_ * PITCH(features) + at_;                             \
                const Vec4 y0_ = VEC4_AT(y_, 0), y1_ = VEC4_AT(y_, PITCH(features));                       \
                const Vec4 y2_ = VEC4_AT(y_, 2 * PITCH(features)), y3_ = VEC4_AT(y_, 3 * PITCH(features)); \
                _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++) acc[i_][j_] += x_[i_].s0 * y0_;  \
                _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++) acc[i_][j_] += x_[i_].s1 * y1_;  \
                _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++) acc[i_][j_] += x_[i_].s2 * y2_;  \
                _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++) acc[i_][j_] += x_[i_].s3 * y3_;  \
            }                                                                                              \
        }                                                                                                  \
    }
#endif

// Store the vectors values[i][j] times factor(i) as rows of `length` features of result `to`, below row `limit`.
#define STORE_ROWS(D, values, factor, to, first, limit, length, features)                                 \
    _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++) {                                           \
        const uint row_ = (first) + LANE_Y + i_ * LANES_Y;                                                \
        if (row_ < (limit)) {                                                                             \
            _Pragma("unroll") for (uint j_ = 0; j_ < VECTORS(features); j_++) {                           \
                const uint column_ = (LANE_X + j_ * LANES_X) * 4;                                         \
                const Vec4 value_ = values[i_][j_] * (factor);                                            \
                const REAL line_[4] = {value_.s0, value_.s1, value_.s2, value_.s3};                       \
                _Pragma("unroll") for (uint k_ = 0; k_ < 4; k_++)                                         \
                    if (column_ + k_ < (length)) STORE(D, line_[k_], to, row_ * to##_row + column_ + k_); \
            }                                                                                             \
        }                                                                                                 \
    }

// Reduce one number per row over the LANES_X lanes of the row: by warp shuffles, or through `scratch`, ROWS * LANES_X
// numbers of local memory.
#if TENSOR_CORES
#define DEFINE_ROW_REDUCTION(name, COMBINE)                                                  \
    static inline void name(REAL values[ITEM_ROWS], __local REAL *scratch) {                 \
        _Pragma("unroll") for (uint i = 0; i < ITEM_ROWS; i++)                               \
            _Pragma("unroll") for (uint distance = LANES_X / 2; distance > 0; distance /= 2) \
                values[i] = COMBINE(values[i], shuffle_xor(values[i], distance));            \
    }
#else
#define DEFINE_ROW_REDUCTION(name, COMBINE)                                                                              \
    static inline void name(REAL values[ITEM_ROWS], __local REAL *scratch) {                                             \
        const uint x = LANE_X, y = LANE_Y;                                                                               \
        for (uint i = 0; i < ITEM_ROWS; i++) scratch[(y + i * LANES_Y) * LANES_X + x] = values[i];                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                    \
        for (uint i = 0; i < ITEM_ROWS; i++) {                                                                           \
            values[i] = scratch[(y + i * LANES_Y) * LANES_X];                                                            \
            for (uint k = 1; k < LANES_X; k++) values[i] = COMBINE(values[i], scratch[(y + i * LANES_Y) * LANES_X + k]); \
        }                                                                                                                \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                    \
    }
#endif
#define PLUS(a, b) ((a) + (b))
DEFINE_ROW_REDUCTION(reduce_rows_max, fmax)
DEFINE_ROW_REDUCTION(reduce_rows_sum, PLUS)

#endif
