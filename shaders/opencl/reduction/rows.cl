// Reduction of runs of neighbouring elements: LANES work-items share a part of a row and have UNROLL loads under way each. With SPANS, for
// CPUs, a work-item takes `each` parts one after the other.
//
// Results are numbered over two kept axes (lengths k0, k1, strides k0s, k1s), terms over two reduced axes (the inner of
// length r1 and stride r1s, the outer of stride r0s). They are cut into pieces of `piece` terms, which `parts` parts take in turn:
// groups that run at the same time then read neighbouring memory. Result (row, part) goes to out[row * parts + part].
// `divisor` applies with DIVIDE only.

#ifndef WIDTH
#define WIDTH 4
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

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
#ifndef SPANS
#define SPANS 0
#endif
#define TERM ACCUMULATOR
#include "lib/combine.h"
#include "lib/group_reduce.h"
#ifndef X_IS_WORKSPACE
#define X_IS_WORKSPACE 0
#define OUT_IS_WORKSPACE 0
#endif

// Turns joined before the result so far: short chains keep the rounding error of sums low.
#define BLOCK 16
#define UNROLL 4
// Elements walked with 32-bit numbers: with 64 bits an H200 sums at two thirds of the speed.
#define LONGEST (1 << 30)
#define LANE(v, j) (((__private ACCUMULATOR *)&(v))[j])
#if WIDTH == 1
#define READ(i) LOAD(DTYPE, run, (long)(i) * r1s)
#define AHEAD_OF(i)
#else
#define AHEAD_OF(i) \
    _Pragma("unroll") for (uint u = 0; u < UNROLL; u++) { PREFETCH_READ(run + ((i) + u) * WIDTH + PREFETCH_DISTANCE / sizeof(*run)) }
#define READ(i) LOADV(DTYPE, run + (i) * WIDTH)
#endif

// One element through the same conversions as a vector of them.
inline ACCUMULATOR term(__global const STORAGE(DTYPE) *p, long at) {
    const VEC(COMPUTE(DTYPE)) v = (VEC(COMPUTE(DTYPE)))(LOAD(DTYPE, p, at));
    VEC(ACCUMULATOR) mapped = MAP(v);
    return LANE(mapped, 0);
}

// Some compilers heed a hint of the width that is used only.
#if WIDTH > 1
#define ALONG_ROWS __attribute__((vec_type_hint(VEC(ACCUMULATOR))))
#else
#define ALONG_ROWS
#endif
__kernel ALONG_ROWS void reduction_rows(__global const STORAGE(DTYPE) *x,
#if !X_IS_WORKSPACE
                          const ulong x_offset,
#endif
                          __global STORAGE(OUT_DTYPE) *out,
#if !OUT_IS_WORKSPACE
                          const ulong out_offset,
#endif
                          const ulong k0, const long k0s, const ulong k1, const long k1s, const long r0s, const ulong r1,
                          const long r1s, const ulong length, const ulong parts, const ulong piece,
                          const ACCUMULATOR divisor, const ulong each) {
    const uint lane = LANE_ID;
    GROUP_SCRATCH(ACCUMULATOR)
#if !X_IS_WORKSPACE
    x += x_offset;
#endif
#if !OUT_IS_WORKSPACE
    out += out_offset;
#endif
#if SPANS
    const bool active = true;
    for (ulong task = get_global_id(0) * each, last = min(task + each, k0 * k1 * parts); task < last; task++) {
#else
    const ulong task = get_global_id(0) / LANES;
    const bool active = task < k0 * k1 * parts;
    {
#endif
        const ulong row = task / parts;
        const ulong part = task - row * parts;
        ACCUMULATOR total = IDENTITY;
        if (active) {
            __global const STORAGE(DTYPE) *begins = x + (long)(row / k1) * k0s + (long)(row % k1) * k1s;
            for (ulong begin = part * piece; begin < length; begin += parts * piece) {
                const ulong end = min(begin + piece, length);
                ulong at = begin;
                while (at < end) {
                    const ulong outer = at < r1 ? 0 : at / r1;
                    const ulong inner = at - outer * r1;
                    const uint count = min(min(end - at, r1 - inner), (ulong)LONGEST);
                    __global const STORAGE(DTYPE) *run = begins + (long)outer * r0s + (long)inner * r1s;
                    const uint vectors = count / WIDTH, whole = vectors - vectors % (UNROLL * LANES);
                    VEC(ACCUMULATOR) sums = (VEC(ACCUMULATOR))(IDENTITY);
                    uint i = lane;
                    while (i < whole) {
                        VEC(ACCUMULATOR) block = (VEC(ACCUMULATOR))(IDENTITY);
                        const uint stop = min(i + BLOCK * UNROLL * LANES, whole);
                        for (; i < stop; i += UNROLL * LANES) {
                            AHEAD_OF(i)
                            VEC(COMPUTE(DTYPE)) v = READ(i);
                            const VEC(ACCUMULATOR) first = MAP(v);
                            v = READ(i + LANES);
                            const VEC(ACCUMULATOR) second = MAP(v);
                            v = READ(i + 2 * LANES);
                            const VEC(ACCUMULATOR) third = MAP(v);
                            v = READ(i + 3 * LANES);
                            const VEC(ACCUMULATOR) fourth = MAP(v);
                            const VEC(ACCUMULATOR) left = COMBINE_VECTORS(first, second), right = COMBINE_VECTORS(third, fourth);
                            const VEC(ACCUMULATOR) both = COMBINE_VECTORS(left, right);
                            block = COMBINE_VECTORS(block, both);
                        }
                        sums = COMBINE_VECTORS(sums, block);
                    }
                    for (; i < vectors; i += LANES) {
                        const VEC(COMPUTE(DTYPE)) v = READ(i);
                        const VEC(ACCUMULATOR) mapped = MAP(v);
                        sums = COMBINE_VECTORS(sums, mapped);
                    }
                    const ACCUMULATOR joined = REDUCE_LANES(sums);
                    total = COMBINE_SCALARS(total, joined);
                    for (uint j = vectors * WIDTH + lane; j < count; j += LANES) {
                        const ACCUMULATOR value = term(run, (long)j);
                        total = COMBINE_SCALARS(total, value);
                    }
                    at += count;
                }
            }
        }
        GROUP_REDUCE(total, COMBINE_SCALARS)
        if (active && lane == 0) {
#if DIVIDE
            total /= divisor;
#endif
            STORE(OUT_DTYPE, (COMPUTE(OUT_DTYPE))total, out, task);
        }
    }
}
