// Second stage of a split-K weight gradient: result (filter, channel, tap) of a group = sum over splits of
// partial[split][group][tap][channel][filter], in order, with `pitch` channels per tap. Neighbours read neighbouring filters
// and write neighbouring taps: a group transposes SIDE x SIDE sums in local memory.
//
// With PAIRS the channels of two neighbouring taps are one tap of eight channels (see conv/wgmma_pack.cl).

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#include "lib/dtypes.h"

#ifndef PAIRS
#define PAIRS 0
#endif

#define SIDE 16
#define ITEMS (SIDE * SIDE)
// Splits whose partial sums are read at once.
#define UNROLLED_SPLITS 16

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_split_k_reduce(
    __global const float *partial, __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint size,
    const uint filters, const uint channels, const uint pitch, const uint taps, const uint taps_across,
    const uint splits, const long out_group, const long out_filter, const long out_channel, const long out_down,
#if PAIRS
    const uint pairs, const uint shift,
#endif
    const long out_across) {
    __local float transposed[SIDE * (SIDE + 1)];
    const uint near = get_local_id(0) % SIDE, far = get_local_id(0) / SIDE, group = get_group_id(2);
    const uint first_element = get_group_id(0) * SIDE, first_filter = get_group_id(1) * SIDE;
    {
        const uint element = first_element + far, filter = first_filter + near;
        const int exists = element < channels * taps && filter < filters;
#if PAIRS
        const uint at = element % taps % taps_across + shift;
        const uint row = (element % taps / taps_across * pairs + at / 2) * pitch + at % 2 * (pitch / 2) + element / taps;
#else
        const uint row = (group * taps + element % taps) * pitch + element / taps;
#endif
        partial += (ulong)row * filters + filter;
        float sum = 0;
        for (uint from = 0; from < splits; from += UNROLLED_SPLITS)
#pragma unroll
            for (uint s = from; s < from + UNROLLED_SPLITS; s++)
                if (exists && s < splits) sum += partial[(ulong)s * size];
        transposed[near * (SIDE + 1) + far] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint element = first_element + near, filter = first_filter + far, tap = element % taps;
    if (element < channels * taps && filter < filters)
        STORE(OUT_DTYPE, transposed[far * (SIDE + 1) + near], out,
              (long)out_offset + group * out_group + filter * out_filter + element / taps * out_channel +
                  tap / taps_across * out_down + tap % taps_across * out_across);
}
