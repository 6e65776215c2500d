// Per-query statistics for attention's gradient: pairs (logsumexp * log2(e), delta), where delta = sum over features of
// g * out. If a mask is added (MASK of 2), the logsumexp is kept in its two parts, and one number is unused.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// Work-items per query, and queries per group.
#ifndef LANES
#define LANES 1
#endif
#ifndef QUERIES
#define QUERIES 64
#endif
// True if features are contiguous, in whole aligned vectors of four.
#ifndef ALIGNED_ROWS
#define ALIGNED_ROWS 0
#endif
#define WIDTH 4
#define ALIGNED 1
#include "attention/geometry.h"
#include "lib/vectors.h"

typedef struct {
    STRIDES(g);
    ROW_STRIDES(out);
    uint rows, t, e, batch1, batch2;
} DeltaGeometry;

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(LANES *QUERIES, 1, 1))) void attention_delta(
    OPERAND(DTYPE, g), OPERAND(DTYPE, out), __global const REAL *lse, const ulong lse_offset, __global REAL *statistics,
    const DeltaGeometry geometry) {
    const uint rows = geometry.rows, t = geometry.t, e = geometry.e;
    const uint lane = get_local_id(0) % LANES;
    const uint row = get_group_id(0) * QUERIES + get_local_id(0) / LANES;
    REAL sum = 0;
    if (row < rows) {
        HEAD_INDICES(row / t);
        SELECT_HEAD(g);
        g += (long)(row % t) * g_row;
        SELECT_RESULT(out);
        out += (long)(row % t) * out_row;
#if ALIGNED_ROWS
        VEC(REAL) sums = (VEC(REAL))(0);
        for (uint c = 4 * lane; c < e; c += 4 * LANES) sums += LOADV(DTYPE, g + c) * LOADV(DTYPE, out + c);
        sum = sums.s0 + sums.s1 + sums.s2 + sums.s3;
#else
        for (uint c = lane; c < e; c += LANES) sum += LOAD(DTYPE, g, c * g_column) * LOAD(DTYPE, out, c);
#endif
    }
#if LANES > 1
    __local REAL lane_sums[LANES * QUERIES];
    lane_sums[get_local_id(0)] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0)
        for (uint k = 1; k < LANES; k++) sum += lane_sums[get_local_id(0) + k];
#endif
    if (row < rows && lane == 0) {
        lse += lse_offset + 2 * (ulong)row;
        statistics += STATISTICS * (ulong)row;
#if MASK == 2
        statistics[0] = lse[0];
        statistics[1] = lse[1] * LOG2E;
#else
        statistics[0] = (lse[0] + lse[1]) * LOG2E;
#endif
        DELTA(statistics) = sum;
    }
}
