// Reduction of runs of neighbouring elements: LANES work-items share a part of a row.
//
// Results are numbered over two kept axes (lengths k0, k1, strides k0s, k1s), terms over two reduced axes (the inner of
// length r1 and stride r1s, the outer of stride r0s). Part p of `parts` takes the terms from p * part_length on. Result
// (row, part) goes to out[row * parts + part]. `divisor` applies with DIVIDE only.

#ifndef WIDTH
#define WIDTH 4
#endif
#include "dtypes.h"
#include "vectors.h"
#include "reduce_operations.h"

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE float32
#define ACCUMULATOR float
#define MAP(v) (v)
#define OPERATION sum
#define IDENTITY 0
#define DIVIDE 0
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef GROUP
#define GROUP 64
#endif
#ifndef X_IS_WORKSPACE
#define X_IS_WORKSPACE 0
#define OUT_IS_WORKSPACE 0
#endif

// Vectors joined before the result so far: short chains keep the rounding error of sums low.
#define BLOCK 64
#define VECTOR_JOIN(a, b) CONCAT(VECTOR_, OPERATION)(a, b)
#define SCALAR_JOIN(a, b) CONCAT(SCALAR_, OPERATION)(a, b)
#define LANE(v, j) (((__private ACCUMULATOR *)&(v))[j])

// One element through the same conversions as a vector of them.
inline ACCUMULATOR term(__global const STORAGE(DTYPE) *p, long at) {
    const VEC(COMPUTE(DTYPE)) v = (VEC(COMPUTE(DTYPE)))(LOAD(DTYPE, p, at));
    VEC(ACCUMULATOR) mapped = MAP(v);
    return LANE(mapped, 0);
}

__kernel void reduce_rows(__global const STORAGE(DTYPE) *x,
#if !X_IS_WORKSPACE
                          const ulong x_offset,
#endif
                          __global STORAGE(OUT_DTYPE) *out,
#if !OUT_IS_WORKSPACE
                          const ulong out_offset,
#endif
                          const ulong k0, const long k0s, const ulong k1, const long k1s, const long r0s, const ulong r1,
                          const long r1s, const ulong length, const ulong parts, const ulong part_length,
                          const ACCUMULATOR divisor) {
    const ulong task = get_global_id(0) / LANES;
    const uint lane = get_global_id(0) % LANES;
    const bool active = task < k0 * k1 * parts;
    const ulong row = task / parts;
    const ulong part = task - row * parts;
    ACCUMULATOR total = IDENTITY;
    if (active) {
#if !X_IS_WORKSPACE
        x += x_offset;
#endif
        x += (long)(row / k1) * k0s + (long)(row % k1) * k1s;
        ulong at = part * part_length;
        const ulong end = min(at + part_length, length);
        while (at < end) {
            const ulong outer = at / r1;
            const ulong inner = at - outer * r1;
            const ulong count = min(end - at, r1 - inner);
            __global const STORAGE(DTYPE) *run = x + (long)outer * r0s + (long)inner * r1s;
#if WIDTH == 1
            for (ulong i = lane; i < count; i += BLOCK * LANES) {
                ACCUMULATOR block = IDENTITY;
                const ulong stop = min(i + BLOCK * LANES, count);
                for (ulong j = i; j < stop; j += LANES) {
                    const ACCUMULATOR value = term(run, (long)j * r1s);
                    block = SCALAR_JOIN(block, value);
                }
                total = SCALAR_JOIN(total, block);
            }
#else
            const ulong vectors = count / WIDTH;
            VEC(ACCUMULATOR) sums = (VEC(ACCUMULATOR))(IDENTITY);
            for (ulong i = lane; i < vectors; i += BLOCK * LANES) {
                VEC(ACCUMULATOR) block = (VEC(ACCUMULATOR))(IDENTITY);
                const ulong stop = min(i + BLOCK * LANES, vectors);
                for (ulong j = i; j < stop; j += LANES) {
                    const VEC(COMPUTE(DTYPE)) v = LOADV(DTYPE, run + j * WIDTH);
                    const VEC(ACCUMULATOR) mapped = MAP(v);
                    block = VECTOR_JOIN(block, mapped);
                }
                sums = VECTOR_JOIN(sums, block);
            }
            for (uint j = 0; j < WIDTH; j++) total = SCALAR_JOIN(total, LANE(sums, j));
            for (ulong j = vectors * WIDTH + lane; j < count; j += LANES) {
                const ACCUMULATOR value = term(run, (long)j);
                total = SCALAR_JOIN(total, value);
            }
#endif
            at += count;
        }
    }
#if LANES > 1
    __local ACCUMULATOR shared[GROUP];
    const uint id = get_local_id(0);
    shared[id] = total;
    for (uint distance = LANES / 2; distance > 0; distance /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < distance) shared[id] = SCALAR_JOIN(shared[id], shared[id + distance]);
    }
    total = shared[id];
#endif
    if (active && lane == 0) {
#if DIVIDE
        total /= divisor;
#endif
#if !OUT_IS_WORKSPACE
        out += out_offset;
#endif
        STORE(OUT_DTYPE, (COMPUTE(OUT_DTYPE))total, out, task);
    }
}
