// Reduction along rows, where terms are contiguous: LANES work-items share a split of a row, with UNROLL loads in flight each.
// With TASKS_IN_TURN, for CPUs, a work-item takes `tasks_each` splits one after the other. It reads a run in STREAMS parts at
// the same time: a core has more lines in flight for several streams than for one.
//
// Axes, splits and chunks as in reduction/geometry.h. The result of (row, split) goes to out[row * splits + split]. `divisor`
// applies with DIVIDE only.

#ifndef WIDTH
#define WIDTH 4
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "lib/vectors.h"
#include "reduction/geometry.h"

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
#ifndef TASKS_IN_TURN
#define TASKS_IN_TURN 0
#endif
// 1, 2 or 4.
#ifndef STREAMS
#define STREAMS 1
#endif
#define TERM ACCUMULATOR
#include "lib/combine.h"
#include "lib/group_reduce.h"

// Iterations summed before they are added to the result so far: short chains keep the rounding error of sums low.
#define BLOCK 16
#define UNROLL 4
// Elements of a run, so that its indices have 32 bits: with 64 an H200 sums at two thirds of the speed.
#define LONGEST (1 << 30)
#define LANE(v, j) (((__private ACCUMULATOR *)&(v))[j])
// Vectors of a stream that are loaded at once, and the place of load `u` in all streams.
#define FROM_STREAM (UNROLL / STREAMS)
#define PLACE(i, u) ((i) + (u) / FROM_STREAM * part + (u) % FROM_STREAM * LANES)
#if WIDTH == 1
#define READ(i) LOAD(DTYPE, run, (long)(i) * reduced_inner_stride)
#else
#define READ(i) LOADV(DTYPE, run + (i) * WIDTH)
#endif
#if WIDTH == 1 || STREAMS > 1
#define PREFETCH_AFTER(i)
#else
#define PREFETCH_AFTER(i)                                                           \
    _Pragma("unroll") for (uint u = 0; u < UNROLL; u++) {                           \
        PREFETCH_READ(run + ((i) + u) * WIDTH + PREFETCH_DISTANCE / sizeof(*run))   \
    }
#endif

// One element, with the same conversions as a vector.
static inline ACCUMULATOR term(__global const STORAGE(DTYPE) *p, long at) {
    const VEC(COMPUTE(DTYPE)) v = (VEC(COMPUTE(DTYPE)))(LOAD(DTYPE, p, at));
    VEC(ACCUMULATOR) mapped = MAP(v);
    return LANE(mapped, 0);
}

// Some compilers vectorize by the hint only if it is the width in use.
#if WIDTH > 1
#define ALONG_ROWS __attribute__((vec_type_hint(VEC(ACCUMULATOR))))
#else
#define ALONG_ROWS
#endif
__kernel ALONG_ROWS void reduction_rows(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                        __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                                        const ACCUMULATOR divisor, const ulong tasks_each,
                                        const ReductionGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_AXES;
    const uint lane = LANE_ID;
    GROUP_SCRATCH(ACCUMULATOR)
    x += x_offset;
    out += out_offset;
#if TASKS_IN_TURN
    const bool active = true;
    for (ulong task = get_global_id(0) * tasks_each, last = min(task + tasks_each, kept_outer * kept_inner * splits); task < last; task++) {
#else
    const ulong task = get_global_id(0) / LANES;
    const bool active = task < kept_outer * kept_inner * splits;
    {
#endif
        const ulong row = task / splits;
        const ulong split = task - row * splits;
        ACCUMULATOR total = IDENTITY;
        if (active) {
            __global const STORAGE(DTYPE) *begins =
                x + (long)(row / kept_inner) * kept_outer_stride + (long)(row % kept_inner) * kept_inner_stride;
            for (ulong begin = split * chunk; begin < length; begin += splits * chunk) {
                const ulong end = min(begin + chunk, length);
                ulong at = begin;
                while (at < end) {
                    const ulong outer = at < reduced_inner ? 0 : at / reduced_inner;
                    const ulong inner = at - outer * reduced_inner;
                    const uint count = min(min(end - at, reduced_inner - inner), (ulong)LONGEST);
                    __global const STORAGE(DTYPE) *run =
                        begins + (long)outer * reduced_outer_stride + (long)inner * reduced_inner_stride;
                    const uint vectors = count / WIDTH, whole = vectors - vectors % (UNROLL * LANES);
                    const uint part = whole / STREAMS;
                    VEC(ACCUMULATOR) sums = (VEC(ACCUMULATOR))(IDENTITY);
                    uint i = lane;
                    while (i < part) {
                        VEC(ACCUMULATOR) block = (VEC(ACCUMULATOR))(IDENTITY);
                        const uint stop = min(i + BLOCK * FROM_STREAM * LANES, part);
                        for (; i < stop; i += FROM_STREAM * LANES) {
                            PREFETCH_AFTER(i)
                            VEC(COMPUTE(DTYPE)) v = READ(PLACE(i, 0));
                            const VEC(ACCUMULATOR) first = MAP(v);
                            v = READ(PLACE(i, 1));
                            const VEC(ACCUMULATOR) second = MAP(v);
                            v = READ(PLACE(i, 2));
                            const VEC(ACCUMULATOR) third = MAP(v);
                            v = READ(PLACE(i, 3));
                            const VEC(ACCUMULATOR) fourth = MAP(v);
                            const VEC(ACCUMULATOR) left = COMBINE_VECTORS(first, second);
                            const VEC(ACCUMULATOR) right = COMBINE_VECTORS(third, fourth);
                            const VEC(ACCUMULATOR) both = COMBINE_VECTORS(left, right);
                            block = COMBINE_VECTORS(block, both);
                        }
                        sums = COMBINE_VECTORS(sums, block);
                    }
                    for (i += whole - part; i < vectors; i += LANES) {
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
