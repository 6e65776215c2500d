// The second stage of a weight's gradient: result (filter, channel, tap) of a group = sum over shares of
// partial[share][group][tap, channel][filter], in order, with channels `pitch` apart. Neighbours read neighbouring
// filters and write neighbouring taps: a group turns SIDE x SIDE sums round in local memory.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#include "lib/dtypes.h"

#define SIDE 16
#define ITEMS (SIDE * SIDE)
// Partial sums that are read at once.
#define TOGETHER 16

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_split_k_reduce(
    __global const float *partial, __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint size,
    const uint filters, const uint channels, const uint pitch, const uint taps, const uint taps_across,
    const uint shares, const long out_group, const long out_filter, const long out_channel, const long out_down,
    const long out_across) {
    __local float turned[SIDE * (SIDE + 1)];
    const uint near = get_local_id(0) % SIDE, far = get_local_id(0) / SIDE, group = get_group_id(2);
    const uint first_place = get_group_id(0) * SIDE, first_filter = get_group_id(1) * SIDE;
    {
        const uint place = first_place + far, filter = first_filter + near;
        const int exists = place < channels * taps && filter < filters;
        partial += ((group * taps + place % taps) * pitch + place / taps) * filters + filter;
        float sum = 0;
        for (uint from = 0; from < shares; from += TOGETHER)
#pragma unroll
            for (uint s = from; s < from + TOGETHER; s++)
                if (exists && s < shares) sum += partial[(ulong)s * size];
        turned[near * (SIDE + 1) + far] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint place = first_place + near, filter = first_filter + far, tap = place % taps;
    if (place < channels * taps && filter < filters)
        STORE(OUT_DTYPE, turned[far * (SIDE + 1) + near], out,
              (long)out_offset + group * out_group + filter * out_filter + place / taps * out_channel +
                  tap / taps_across * out_down + tap % taps_across * out_across);
}
