// Second stage of a split-K weight gradient: result (filter, channel, tap) of a group = sum over splits of
// partial[split][group][tap][channel][filter], in order, with `pitch` channels per tap. Neighbours read neighbouring filters
// and write neighbouring taps: a group transposes SIDE x SIDE sums in local memory.
//
// With PAIRS the channels of two neighbouring taps are one tap of eight channels (see conv/wgmma_pack.cl).

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"

#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef SIDE
#define SIDE 16
#endif
// Constants, by which divisions are cheap: with few splits they take longer than the sums.
#ifndef TAPS
#define TAPS 9
#endif
#ifndef TAPS_ACROSS
#define TAPS_ACROSS 3
#endif
// Splits whose partial sums are read at once.
#ifndef UNROLLED_SPLITS
#define UNROLLED_SPLITS 16
#endif

#define ITEMS 256
#define ROWS (ITEMS / SIDE)
#define RESULTS (SIDE / ROWS)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_split_k_reduce(
    __global const float *partial, __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint size,
    const uint filters, const uint channels, const uint pitch, const uint splits, const long out_group,
    const long out_filter, const long out_channel, const long out_down,
#if PAIRS
    const uint pairs, const uint shift,
#endif
    const long out_across) {
    START_NEXT
    AWAIT_INPUTS
    __local float transposed[SIDE * (SIDE + 1)];
    const uint near = get_local_id(0) % SIDE, far = get_local_id(0) / SIDE, group = get_group_id(2);
    const uint first_element = get_group_id(0) * SIDE, first_filter = get_group_id(1) * SIDE;
    const uint elements = channels * TAPS;
    {
        const uint filter = first_filter + near;
        __global const float *sources[RESULTS];
        float sums[RESULTS];
#pragma unroll
        for (uint i = 0; i < RESULTS; i++) {
            const uint element = first_element + far + i * ROWS;
#if PAIRS
            const uint at = element % TAPS % TAPS_ACROSS + shift;
            const uint row =
                (element % TAPS / TAPS_ACROSS * pairs + at / 2) * pitch + at % 2 * (pitch / 2) + element / TAPS;
#else
            const uint row = (group * TAPS + element % TAPS) * pitch + element / TAPS;
#endif
            sources[i] = partial + (ulong)row * filters + filter;
            sums[i] = 0;
        }
        for (uint from = 0; from < splits; from += UNROLLED_SPLITS)
#pragma unroll
            for (uint i = 0; i < RESULTS; i++) {
                const uint end = first_element + far + i * ROWS < elements && filter < filters ? splits : 0;
#pragma unroll
                for (uint s = from; s < from + UNROLLED_SPLITS; s++)
                    if (s < end) sums[i] += sources[i][(ulong)s * size];
            }
#pragma unroll
        for (uint i = 0; i < RESULTS; i++) transposed[near * (SIDE + 1) + far + i * ROWS] = sums[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint element = first_element + near, tap = element % TAPS;
    out += (long)out_offset + group * out_group + element / TAPS * out_channel + tap / TAPS_ACROSS * out_down +
           tap % TAPS_ACROSS * out_across;
#pragma unroll
    for (uint i = 0; i < RESULTS; i++) {
        const uint row = far + i * ROWS, filter = first_filter + row;
        if (element < elements && filter < filters)
            STORE(OUT_DTYPE, transposed[row * (SIDE + 1) + near], out, filter * out_filter);
    }
}
