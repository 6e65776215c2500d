// Tiles of attention's operands in local memory, for groups whose work-items make R by C scores each of a tile of ROWS by COLUMNS.
//
// A group is LANES work-items across (`me`) times DOWN teams; work-item (team, me) has rows team + i * DOWN and columns me + j * LANES.
// Rows are PITCH(features) apart, an odd number of vectors of four, so that eight neighbouring rows fall on different banks.

#ifndef POLYHAL_HEAD_TILES
#define POLYHAL_HEAD_TILES

#ifndef ROWS
#define ROWS 32
#endif
#ifndef COLUMNS
#define COLUMNS 32
#endif
#ifndef R
#define R 4
#endif
#ifndef C
#define C 4
#endif
// The features of queries and keys, and of values, rounded up to multiples of 8.
#ifndef FEATURES
#define FEATURES 32
#endif
#ifndef VALUES
#define VALUES 32
#endif
// Features lie side by side in whole aligned vectors of four.
#ifndef WHOLE
#define WHOLE 0
#endif
// Elements lie in memory as they are computed.
#ifndef PLAIN
#define PLAIN 1
#endif
#define LANES (COLUMNS / C)
#define DOWN (ROWS / R)
#define GROUP (LANES * DOWN)
#define PITCH(features) ((features) + 4)
#define WEIGHTS_PITCH (COLUMNS + 4)
// Vectors of features that a work-item gathers.
#define VECTORS(features) (((features) / 4 + LANES - 1) / LANES)

#define WIDTH 4
#define ALIGNED 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/async_copy.h"

typedef VEC(REAL) Quad;
#define QUAD(memory, at) (*(__local Quad *)&(memory)[at])

// Copies rows `first` to `first` + count of an operand, and zeros for those from `limit` on and for features from `length` on.
// Work-items step down columns of vectors, so that addresses only grow by a constant.
#if WHOLE && PLAIN && TENSOR_CORES
#define PUT_QUAD(D, memory, at, name, from, column, known, length) \
    COPY16(&memory[at], from, (known) && (column) < (length) ? 16 : 0)
#elif WHOLE
#define PUT_QUAD(D, memory, at, name, from, column, known, length) \
    QUAD(memory, at) = (known) && (column) < (length) ? LOADV(D, from) : (Quad)(0)
#else
#define PUT_QUAD(D, memory, at, name, from, column, known, length) \
    for (uint k_ = 0; k_ < 4; k_++)                                \
        memory[(at) + k_] = (known) && (column) + k_ < (length) ? LOAD(D, from, k_ * name##_column) : (REAL)0
#endif
#define PIECES(features) ((features) / 4)
#define STEP(features) (GROUP / PIECES(features))
// Where the vectors of a row do not divide the group, some work-items have none.
#define IN_STEP(features) (GROUP % PIECES(features) == 0 || down_ < STEP(features))
#define LOAD_ROWS(D, memory, features, name, first, count, limit, length)                                              \
    {                                                                                                                  \
        const uint down_ = get_local_id(0) / PIECES(features), column_ = get_local_id(0) % PIECES(features) * 4;       \
        __global const STORAGE(D) *from_ = name + (long)((first) + down_) * name##_row + (long)column_ * name##_column; \
        const long step_ = STEP(features) * name##_row;                                                                \
        _Pragma("unroll") for (uint i_ = 0; i_ < ((count) + STEP(features) - 1) / STEP(features); i_++) {              \
            const uint row_ = down_ + i_ * STEP(features);                                                             \
            if (((count) % STEP(features) == 0 || row_ < (count)) && IN_STEP(features)) {                              \
                PUT_QUAD(D, memory, row_ * PITCH(features) + column_, name, from_, column_, (first) + row_ < (limit),  \
                         length);                                                                                      \
            }                                                                                                          \
            from_ += step_;                                                                                            \
        }                                                                                                              \
    }

// sums[i][j] = product of row team + i * DOWN of `left` and row me + j * LANES of `right`.
inline void multiply_rows(__local const REAL *left, __local const REAL *right, const uint features, REAL sums[R][C]) {
    const uint me = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
    left += team * PITCH(features);
    right += me * PITCH(features);
#pragma unroll
    for (uint i = 0; i < R; i++)
#pragma unroll
        for (uint j = 0; j < C; j++) sums[i][j] = 0;
#pragma unroll 1
    for (uint c = 0; c < features; c += 4) {
        Quad y[C];
#pragma unroll
        for (uint j = 0; j < C; j++) y[j] = QUAD(right, j * LANES * PITCH(features) + c);
#pragma unroll
        for (uint i = 0; i < R; i++) {
            const Quad x = QUAD(left, i * DOWN * PITCH(features) + c);
#pragma unroll
            for (uint j = 0; j < C; j++) sums[i][j] += x.s0 * y[j].s0;
#pragma unroll
            for (uint j = 0; j < C; j++) sums[i][j] += x.s1 * y[j].s1;
#pragma unroll
            for (uint j = 0; j < C; j++) sums[i][j] += x.s2 * y[j].s2;
#pragma unroll
            for (uint j = 0; j < C; j++) sums[i][j] += x.s3 * y[j].s3;
        }
    }
}

// Puts weights[i][j] where gather_rows finds them.
inline void spread_weights(const REAL weights[R][C], __local REAL *memory) {
    const uint me = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
#pragma unroll
    for (uint i = 0; i < R; i++)
#pragma unroll
        for (uint j = 0; j < C; j++) memory[(team + i * DOWN) * WEIGHTS_PITCH + me + j * LANES] = weights[i][j];
}

// results[i][j] += the weights of row team + i * DOWN times vector me + j * LANES of the rows of `right`.
#define GATHER_ROWS(results, memory, right, features)                                                          \
    {                                                                                                          \
        __local const REAL *weights_ = (memory) + get_local_id(0) / LANES * WEIGHTS_PITCH;                     \
        _Pragma("unroll 1") for (uint c_ = 0; c_ < COLUMNS; c_ += 4) {                                         \
            Quad x_[R];                                                                                        \
            _Pragma("unroll") for (uint i_ = 0; i_ < R; i_++) x_[i_] = QUAD(weights_, i_ * DOWN * WEIGHTS_PITCH + c_); \
            _Pragma("unroll") for (uint j_ = 0; j_ < VECTORS(features); j_++) {                                \
                const uint at_ = min((uint)(get_local_id(0) % LANES + j_ * LANES), (uint)((features) / 4 - 1)) * 4; \
                __local const REAL *y_ = (right) + c_ * PITCH(features) + at_;                                 \
                const Quad y0_ = QUAD(y_, 0), y1_ = QUAD(y_, PITCH(features));                                 \
                const Quad y2_ = QUAD(y_, 2 * PITCH(features)), y3_ = QUAD(y_, 3 * PITCH(features));           \
                _Pragma("unroll") for (uint i_ = 0; i_ < R; i_++) results[i_][j_] += x_[i_].s0 * y0_;          \
                _Pragma("unroll") for (uint i_ = 0; i_ < R; i_++) results[i_][j_] += x_[i_].s1 * y1_;          \
                _Pragma("unroll") for (uint i_ = 0; i_ < R; i_++) results[i_][j_] += x_[i_].s2 * y2_;          \
                _Pragma("unroll") for (uint i_ = 0; i_ < R; i_++) results[i_][j_] += x_[i_].s3 * y3_;          \
            }                                                                                                  \
        }                                                                                                      \
    }

// Stores the vectors values[i][j] times factor(i) as rows of `length` features of result `to`, where rows and features exist.
#define STORE_ROWS(D, values, factor, to, first, limit, length, features)                        \
    _Pragma("unroll") for (uint i_ = 0; i_ < R; i_++) {                                          \
        const uint row_ = (first) + get_local_id(0) / LANES + i_ * DOWN;                         \
        if (row_ < (limit)) {                                                                    \
            _Pragma("unroll") for (uint j_ = 0; j_ < VECTORS(features); j_++) {                  \
                const uint column_ = (get_local_id(0) % LANES + j_ * LANES) * 4;                 \
                const Quad made_ = values[i_][j_] * (factor);                                    \
                const REAL line_[4] = {made_.s0, made_.s1, made_.s2, made_.s3};                  \
                _Pragma("unroll") for (uint k_ = 0; k_ < 4; k_++)                                \
                    if (column_ + k_ < (length)) STORE(D, line_[k_], to, row_ * to##_row + column_ + k_);     \
            }                                                                                    \
        }                                                                                        \
    }

#if TENSOR_CORES
inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
#define power_of_two exp2
#endif

// The largest or the sum over a team of one number per row. `scratch` holds ROWS * LANES numbers; within a warp it is not needed.
#if TENSOR_CORES
inline float from_lane(float value, uint distance) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(distance));
    return other;
}
#define OVER_TEAM(name, COMBINE)                                                       \
    inline void name(REAL values[R], __local REAL *scratch) {                          \
        _Pragma("unroll") for (uint i = 0; i < R; i++)                                 \
            _Pragma("unroll") for (uint distance = LANES / 2; distance > 0; distance /= 2) \
                values[i] = COMBINE(values[i], from_lane(values[i], distance));        \
    }
#else
#define OVER_TEAM(name, COMBINE)                                                                       \
    inline void name(REAL values[R], __local REAL *scratch) {                                          \
        const uint me = get_local_id(0) % LANES, team = get_local_id(0) / LANES;                       \
        for (uint i = 0; i < R; i++) scratch[(team + i * DOWN) * LANES + me] = values[i];              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                  \
        for (uint i = 0; i < R; i++) {                                                                 \
            values[i] = scratch[(team + i * DOWN) * LANES];                                            \
            for (uint k = 1; k < LANES; k++) values[i] = COMBINE(values[i], scratch[(team + i * DOWN) * LANES + k]); \
        }                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                  \
    }
#endif
#define PLUS(a, b) ((a) + (b))
OVER_TEAM(team_max, fmax)
OVER_TEAM(team_sum, PLUS)

#endif
