// Mean of the losses of rows, and 1 / their number. Rows whose class is `ignored` have a loss of 0 and do not count.
// One launch of one group.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef REAL
#define REAL float
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "lib/group_reduce.h"

// Several independent sums hide the latency of additions.
#define ACCUMULATORS 8

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void rowwise_mean_loss(
    __global const STORAGE(DTYPE) *losses, const ulong losses_offset, __global const STORAGE(INDEX_DTYPE) *target,
    const ulong target_offset, __global STORAGE(DTYPE) *out, const ulong out_offset, __global STORAGE(DTYPE) *scale,
    const ulong scale_offset, const uint rows, const long losses_step, const long target_step, const long ignored) {
    START_NEXT
    AWAIT_INPUTS
    GROUP_SCRATCH(REAL)
    losses += losses_offset;
    target += target_offset;
    REAL sums[ACCUMULATORS], counts[ACCUMULATORS];
#pragma unroll
    for (uint c = 0; c < ACCUMULATORS; c++) sums[c] = counts[c] = 0;
    for (uint begin = LANE_ID; begin < rows; begin += ACCUMULATORS * GROUP) {
#pragma unroll
        for (uint c = 0; c < ACCUMULATORS; c++) {
            const uint row = begin + c * GROUP;
            if (row < rows) {
                sums[c] += LOAD(DTYPE, losses, row * losses_step);
                counts[c] += (long)target[row * target_step] != ignored;
            }
        }
    }
    REAL sum = sums[0], count = counts[0];
#pragma unroll
    for (uint c = 1; c < ACCUMULATORS; c++) {
        sum += sums[c];
        count += counts[c];
    }
    GROUP_SUM(sum)
    GROUP_SUM(count)
    if (LANE_ID == 0) {
        STORE(DTYPE, sum / count, out, out_offset);
        STORE(DTYPE, 1 / count, scale, scale_offset);
    }
}
