// Position of the first extreme element of rows: LANES work-items share a part of a row. Each walks it in blocks of BLOCK vectors,
// whose extreme it compares with the best so far, and looks for the place in the block that won only at the end.
//
// Rows are numbered over two kept axes, terms over two reduced axes, in the order in which positions count (arguments as in
// reduction/rows.cl). A NaN counts as the extreme. With PARTIAL, the best term of part p of `parts` and its position go to values[row * parts + p] and places[row * parts + p], and join_positions finds the best of the parts.

#ifndef WIDTH
#define WIDTH 4
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

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
#ifndef PARTIAL
#define PARTIAL 0
#endif
#define TERM COMPUTE(DTYPE)
#include "lib/combine.h"
#include "lib/group_reduce.h"

#define T COMPUTE(DTYPE)
#define BLOCK (WIDTH > 4 ? 16 : 4)
#define NOWHERE ULONG_MAX
#define LONGEST (1 << 30)
#define LANE(v, j) (((__private T *)&(v))[j])
#define IS_BEST(value) ((value) == best || ((value) != (value) && best != best))
#if WIDTH == 1
#define READ(p, i) LOAD(DTYPE, p, (long)(i) * r1s)
#else
#define READ(p, i) LOADV(DTYPE, (p) + (i) * WIDTH)
#endif

// Whether term (a, i) comes before (b, j): NaN first, then the extreme, then the smaller position.
inline int precedes(T a, ulong i, T b, ulong j) {
    if (i == NOWHERE || j == NOWHERE) return j == NOWHERE;
    const int a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && a != b) return a BETTER b;
    return i < j;
}

// Whether a later term wins: by a better value, or by being the first NaN.
inline int surpasses(T a, T best) { return a BETTER best || (a != a && best == best); }

// The best (value, place) of the LANES work-items of a team, known to its first.
#if LANES == 1
#define JOIN_TEAM(best, place)
#else
#define JOIN_TEAM(best, place) \
    __local T team_values[GROUP]; \
    __local ulong team_places[GROUP]; \
    team_values[LOCAL_ID] = best; \
    team_places[LOCAL_ID] = place; \
    for (uint reach = LANES / 2; reach > 0; reach /= 2) { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        if (LANE_ID < reach) { \
            const T other = team_values[LOCAL_ID + reach]; \
            const ulong there = team_places[LOCAL_ID + reach]; \
            if (precedes(other, there, best, place)) { \
                best = team_values[LOCAL_ID] = other; \
                place = team_places[LOCAL_ID] = there; \
            } \
        } \
    }
#endif

__kernel void reduction_arg_rows(__global const STORAGE(DTYPE) *x, const ulong x_offset,
#if PARTIAL
                         __global T *values, __global ulong *places,
#else
                         __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
                         const ulong k0, const long k0s, const ulong k1, const long k1s, const long r0s, const ulong r1,
                         const long r1s, const ulong length, const ulong parts, const ulong piece) {
    const ulong task = get_global_id(0) / LANES;
    const uint lane = LANE_ID;
    const bool active = task < k0 * k1 * parts;
    T best = 0;
    ulong place = NOWHERE;
    if (active) {
        const ulong row = task / parts;
        x += (long)x_offset + (long)(row / k1) * k0s + (long)(row % k1) * k1s;
        bool whole_block = false;
        for (ulong begin = (task - row * parts) * piece; begin < length; begin += parts * piece) {
            const ulong end = min(begin + piece, length);
            ulong at = begin;
            while (at < end) {
                const ulong outer = at < r1 ? 0 : at / r1;
                const ulong inner = at - outer * r1;
                const uint count = min(min(end - at, r1 - inner), (ulong)LONGEST);
                __global const STORAGE(DTYPE) *run = x + (long)outer * r0s + (long)inner * r1s;
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
                        const T value = LOAD(DTYPE, run, (long)(i * WIDTH + j) * r1s);
                        if (place == NOWHERE || surpasses(value, best)) {
                            best = value;
                            place = at + i * WIDTH + j;
                            whole_block = false;
                        }
                    }
                }
                for (uint j = vectors * WIDTH + lane; j < count; j += LANES) {
                    const T value = LOAD(DTYPE, run, (long)j * r1s);
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
            const ulong outer = begun / r1;
            __global const STORAGE(DTYPE) *run = x + (long)outer * r0s + (long)(begun - outer * r1) * r1s;
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
            // All loads at once: one by one, each would wait for the one before.
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
    JOIN_TEAM(best, place)
    if (active && lane == 0) {
#if PARTIAL
        values[task] = best;
        places[task] = place;
#else
        STORE(OUT_DTYPE, place, out, out_offset + task);
#endif
    }
}

__kernel void join_positions(__global const T *values, __global const ulong *places, __global STORAGE(OUT_DTYPE) *out,
                             const ulong out_offset, const ulong results, const ulong parts) {
    const ulong row = get_global_id(0) / LANES;
    const bool active = row < results;
    T best = 0;
    ulong place = NOWHERE;
    if (active) {
        for (ulong part = LANE_ID; part < parts; part += LANES) {
            const T value = values[row * parts + part];
            const ulong there = places[row * parts + part];
            if (precedes(value, there, best, place)) {
                best = value;
                place = there;
            }
        }
    }
    JOIN_TEAM(best, place)
    if (active && LANE_ID == 0) STORE(OUT_DTYPE, place, out, out_offset + row);
}
