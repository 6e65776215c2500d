// The sum of the chunks of each of several tensors, with one group per tensor, in fixed order; with ROOT the square root of
// each. `ranges` has the first chunk and the number of chunks of each tensor.

#ifndef ROOT
#define ROOT 0
#endif
#include "lib/multi_tensor.h"

__kernel void pointwise_sums_of_tensors(__global const REAL *partial, __global const int *ranges, __global REAL *out,
                                        const ulong out_offset) {
    GROUP_SCRATCH(REAL)
    const uint tensor = get_group_id(0);
    const uint first = ranges[2 * tensor], end = first + ranges[2 * tensor + 1];
    REAL sum = 0;
    for (uint i = first + LANE_ID; i < end; i += GROUP) sum += partial[i];
    GROUP_SUM(sum)
    if (LANE_ID == 0) out[out_offset + tensor] = ROOT ? sqrt(sum) : sum;
}
