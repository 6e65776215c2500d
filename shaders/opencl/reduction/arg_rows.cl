// Position of the first extreme term of rows (argmax, argmin): LANES work-items share a split of a row. Each compares the
// extreme of a block of BLOCK vectors with the best so far, and searches only the winning block for the position at the end.
//
// Axes, splits and chunks as in reduction/geometry.h; positions count terms in the order of the reduced axes. A NaN is the
// extreme. With SPLIT, the results of (row, split) are values[row * splits + split] and positions[row * splits +
// split], and reduce_positions finds the best of all splits.

#ifndef WIDTH
#define WIDTH 4
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "reduction/geometry.h"

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE int64
#endif
#ifndef BETTER
#define BETTER >
#define OPERATION largest
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef GROUP
#define GROUP 64
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#define TERM COMPUTE(DTYPE)
#include "lib/combine.h"
#include "lib/group_reduce.h"
#include "lib/dependent_launch.h"

#define T COMPUTE(DTYPE)
#define BLOCK (WIDTH > 4 ? 16 : 4)
#define NOWHERE ULONG_MAX
#define LONGEST (1 << 30)
#define LANE(v, j) (((__private T *)&(v))[j])
#define IS_BEST(value) ((value) == best || ((value) != (value) && best != best))
#if WIDTH == 1
#define READ(p, i) LOAD(DTYPE, p, (long)(i) * reduced_inner_stride)
#else
#define READ(p, i) LOADV(DTYPE, (p) + (i) * WIDTH)
#endif

// True if term (a, i) comes before (b, j): NaN first, then the extreme, then the smaller position.
static inline int precedes(T a, ulong i, T b, ulong j) {
    if (i == NOWHERE || j == NOWHERE) return j == NOWHERE;
    const int a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && a != b) return a BETTER b;
    return i < j;
}

// True if a later term wins: by a better value, or by being the first NaN.
static inline int surpasses(T a, T best) { return a BETTER best || (a != a && best == best); }

// The best (value, place) of the LANES work-items that share a row; only the first has it.
#if LANES == 1
#define REDUCE_POSITIONS(best, place)
#else
#define REDUCE_POSITIONS(best, place) \
    __local T lane_values[GROUP]; \
    __local ulong lane_places[GROUP]; \
    lane_values[LOCAL_ID] = best; \
    lane_places[LOCAL_ID] = place; \
    for (uint reach = LANES / 2; reach > 0; reach /= 2) { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        if (LANE_ID < reach) { \
            const T other = lane_values[LOCAL_ID + reach]; \
            const ulong there = lane_places[LOCAL_ID + reach]; \
            if (precedes(other, there, best, place)) { \
                best = lane_values[LOCAL_ID] = other; \
                place = lane_places[LOCAL_ID] = there; \
            } \
        } \
    }
#endif

#if SPLIT
// The best term of each split, and its position.
#define POSITIONS_RESULT __global T *values, __global ulong *positions
#else
#define POSITIONS_RESULT __global STORAGE(OUT_DTYPE) *out, const ulong out_offset
#endif

__kernel void reduction_arg_rows(__global const STORAGE(DTYPE) *x, const ulong x_offset, POSITIONS_RESULT,
                                 const ReductionGeometry geometry) {
    DECLARE_AXES;
    START_NEXT
    AWAIT_INPUTS
    const ulong task = get_global_id(0) / LANES;
    const uint lane = LANE_ID;
    const bool active = task < kept_outer * kept_inner * splits;
    T best = 0;
    ulong place = NOWHERE;
    if (active) {
        const ulong row = task / splits;
        x += (long)x_offset + (long)(row / kept_inner) * kept_outer_stride;
        x += (long)(row % kept_inner) * kept_inner_stride;
        bool whole_block = false;
        for (ulong begin = (task - row * splits) * chunk; begin < length; begin += splits * chunk) {
            const ulong end = min(begin + chunk, length);
            ulong at = begin;
            while (at < end) {
                const ulong outer = at < reduced_inner ? 0 : at / reduced_inner;
                const ulong inner = at - outer * reduced_inner;
                const uint count = min(min(end - at, reduced_inner - inner), (ulong)LONGEST);
                __global const STORAGE(DTYPE) *run =
                    x + (long)outer * reduced_outer_stride + (long)inner * reduced_inner_stride;
                const uint vectors = count / WIDTH, whole = vectors - vectors % (BLOCK * LANES);
                uint i = lane;
                for (; i < whole; i += BLOCK * LANES) {
                    VEC(T) tops[BLOCK];
#pragma unroll
                    for (uint u = 0; u < BLOCK; u++) tops[u] = READ(run, i + u * LANES);
#pragma unroll
                    for (uint pairs = BLOCK / 2; pairs > 0; pairs /= 2) {
#pragma unroll
                        for (uint u = 0; u < pairs; u++) tops[u] = COMBINE_VECTORS(tops[u], tops[u + pairs]);
                    }
                    const T top = REDUCE_LANES(tops[0]);
                    if (place == NOWHERE || surpasses(top, best)) {
                        best = top;
                        place = at + i * WIDTH;
                        whole_block = true;
                    }
                }
                for (; i < vectors; i += LANES) {
                    for (uint j = 0; j < WIDTH; j++) {
                        const T value = LOAD(DTYPE, run, (long)(i * WIDTH + j) * reduced_inner_stride);
                        if (place == NOWHERE || surpasses(value, best)) {
                            best = value;
                            place = at + i * WIDTH + j;
                            whole_block = false;
                        }
                    }
                }
                for (uint j = vectors * WIDTH + lane; j < count; j += LANES) {
                    const T value = LOAD(DTYPE, run, (long)j * reduced_inner_stride);
                    if (place == NOWHERE || surpasses(value, best)) {
                        best = value;
                        place = at + j;
                        whole_block = false;
                    }
                }
                at += count;
            }
        }
        if (whole_block) {
            const ulong begun = place;
            const ulong outer = begun / reduced_inner;
            __global const STORAGE(DTYPE) *run =
                x + (long)outer * reduced_outer_stride + (long)(begun - outer * reduced_inner) * reduced_inner_stride;
#if WIDTH > 4
            bool found = false;
            for (uint u = 0; u < BLOCK && !found; u++) {
                for (uint j = 0; j < WIDTH && !found; j++) {
                    const uint step = u * LANES * WIDTH + j;
                    found = IS_BEST(LOAD(DTYPE, run, step));
                    place = begun + step;
                }
            }
#else
            // All loads are issued before the first comparison.
            VEC(T) block[BLOCK];
#pragma unroll
            for (uint u = 0; u < BLOCK; u++) block[u] = READ(run, u * LANES);
#pragma unroll
            for (uint u = 0; u < BLOCK; u++) {
#pragma unroll
                for (uint j = 0; j < WIDTH; j++) {
                    const uint back = (BLOCK - 1 - u) * LANES * WIDTH + WIDTH - 1 - j;
                    if (IS_BEST(LANE(block[BLOCK - 1 - u], WIDTH - 1 - j))) place = begun + back;
                }
            }
#endif
        }
    }
    REDUCE_POSITIONS(best, place)
    if (active && lane == 0) {
#if SPLIT
        values[task] = best;
        positions[task] = place;
#else
        STORE(OUT_DTYPE, place, out, out_offset + task);
#endif
    }
}

__kernel void reduce_positions(__global const T *values, __global const ulong *positions, __global STORAGE(OUT_DTYPE) *out,
                             const ulong out_offset, const ulong results, const ulong splits) {
    START_NEXT
    AWAIT_INPUTS
    const ulong row = get_global_id(0) / LANES;
    const bool active = row < results;
    T best = 0;
    ulong place = NOWHERE;
    if (active) {
        for (ulong split = LANE_ID; split < splits; split += LANES) {
            const T value = values[row * splits + split];
            const ulong there = positions[row * splits + split];
            if (precedes(value, there, best, place)) {
                best = value;
                place = there;
            }
        }
    }
    REDUCE_POSITIONS(best, place)
    if (active && LANE_ID == 0) STORE(OUT_DTYPE, place, out, out_offset + row);
}
