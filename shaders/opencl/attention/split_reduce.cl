// Combine the partial results of attention's split keys: per query and split, e accumulated features, the maximum of the
// scores, and the sum of their exponentials. A group combines the parts of one query.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// Work-items per group.
#ifndef GROUP
#define GROUP 1
#endif
// Maximum number of splits.
#ifndef MAX_SPLITS
#define MAX_SPLITS 64
#endif
// 1: the logsumexp of each query is a result, too.
#ifndef LOGSUMEXP
#define LOGSUMEXP 1
#endif
#include "attention/geometry.h"
#include "lib/dependent_launch.h"

typedef struct {
    ROW_STRIDES(out);
    uint t, e, splits, batch1, batch2;
} SplitGeometry;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_split_reduce(
    __global const REAL *partial, RESULT(OUT_DTYPE, out),
#if LOGSUMEXP
    __global REAL *lse, const ulong lse_offset,
#endif
    const SplitGeometry geometry) {
    __local REAL factors[MAX_SPLITS], sums[MAX_SPLITS];
    START_NEXT
    AWAIT_INPUTS
    const uint t = geometry.t, e = geometry.e, splits = geometry.splits, pitch = e + 2;
    const uint row = get_group_id(0), lane = get_local_id(0);
    HEAD_INDICES(row / t);
    SELECT_RESULT(out);
    out += (long)(row % t) * out_row;
    partial += (ulong)row * splits * pitch;
    for (uint split = lane; split < splits; split += GROUP) {
        factors[split] = partial[split * pitch + e];
        sums[split] = partial[split * pitch + e + 1];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    REAL total_max = -INFINITY;
    for (uint split = 0; split < splits; split++) total_max = fmax(total_max, factors[split]);
    const REAL shift = total_max == -INFINITY ? 0 : total_max;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint split = lane; split < splits; split += GROUP) factors[split] = exp(factors[split] - shift);
    barrier(CLK_LOCAL_MEM_FENCE);
    REAL total_sum = 0;
    for (uint split = 0; split < splits; split++) total_sum += factors[split] * sums[split];
    const REAL inverse = total_sum == 0 ? 0 : 1 / total_sum;
    for (uint c = lane; c < e; c += GROUP) {
        REAL value = 0;
#pragma unroll 8
        for (uint split = 0; split < splits; split++) value += factors[split] * partial[split * pitch + c];
        STORE(OUT_DTYPE, value * inverse, out, c);
    }
#if LOGSUMEXP
    if (lane == 0) STORE_LOGSUMEXP(lse + lse_offset + 2 * (ulong)row, total_max, total_sum)
#endif
}
