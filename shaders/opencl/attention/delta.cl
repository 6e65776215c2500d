// Per-query statistics for attention's gradient: pairs (logsumexp * log2(e), delta), where delta = sum over features of
// g * out. If a mask is added (MASK of 2), the logsumexp is kept in its two parts, and one number is unused.
//
// With ZEROS the work-items also write zeros to the sums that later launches add to, which saves a launch.

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
#define GROUP (LANES * QUERIES)
// True if features are contiguous, in whole aligned vectors of WIDTH.
#ifndef ALIGNED_ROWS
#define ALIGNED_ROWS 0
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#define ALIGNED 1
#ifndef ZEROS
#define ZEROS 0
#endif
#if ZEROS
#define ZEROS_OPERAND __global float4 *zeros, const uint zero_quads,
#else
#define ZEROS_OPERAND
#endif
#include "attention/geometry.h"
#include "lib/vectors.h"
#include "lib/dependent_launch.h"
#include "lib/group_reduce.h"
#include "lib/lane_reduce.h"

typedef struct {
    STRIDES(g);
    ROW_STRIDES(out);
    uint rows, t, e, batch1, batch2;
} DeltaGeometry;

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_delta(
    OPERAND(DTYPE, g), OPERAND(DTYPE, out), __global const REAL *lse, const ulong lse_offset, __global REAL *statistics,
    ZEROS_OPERAND const DeltaGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    const uint rows = geometry.rows, t = geometry.t, e = geometry.e;
    const uint lane = get_local_id(0) % LANES;
    const uint row = get_group_id(0) * QUERIES + get_local_id(0) / LANES;
    REAL sum = 0;
#if ZEROS
    for (uint i = get_global_id(0); i < zero_quads; i += get_global_size(0)) zeros[i] = (float4)(0);
#endif
    if (row < rows) {
        HEAD_INDICES(row / t);
        SELECT_HEAD(g);
        g += (long)(row % t) * g_row;
        SELECT_RESULT(out);
        out += (long)(row % t) * out_row;
#if ALIGNED_ROWS
        VEC(REAL) sums = (VEC(REAL))(0);
        for (uint c = WIDTH * lane; c < e; c += WIDTH * LANES) sums += LOADV(DTYPE, g + c) * LOADV(DTYPE, out + c);
        sum = LANES_SUM(sums);
#else
        for (uint c = lane; c < e; c += LANES) sum += LOAD(DTYPE, g, c * g_column) * LOAD(DTYPE, out, c);
#endif
    }
    GROUP_SCRATCH(REAL)
    GROUP_SUM(sum)
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
