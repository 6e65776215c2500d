// What attention's gradient needs of each query: delta = sum over features of g * out. With STATISTICS, pairs: the logsumexp first, for
// powers of two, as it is taken away from scores. A query that sees nothing has minus infinity; its scores are too, and so it becomes 0.

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
#ifndef TEAMS
#define TEAMS 64
#endif
#ifndef STATISTICS
#define STATISTICS 0
#endif
// Features lie side by side in whole aligned vectors of four.
#ifndef WHOLE
#define WHOLE 0
#endif
#define WIDTH 4
#define ALIGNED 1
#include "attention/arguments.h"
#include "lib/vectors.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(LANES *TEAMS, 1, 1))) void attention_delta(
    OPERAND(DTYPE, g), OPERAND(DTYPE, out),
#if STATISTICS
    __global const REAL *lse, const ulong lse_offset,
#endif
    __global REAL *delta, const uint rows, const uint t, const uint e,
    const uint batch1, const uint batch2, STRIDES(g), PLACES(out)) {
    const uint me = get_local_id(0) % LANES;
    const uint row = get_group_id(0) * TEAMS + get_local_id(0) / LANES;
    REAL sum = 0;
    if (row < rows) {
        HEAD_NUMBERS(row / t);
        FIND(g);
        g += (long)(row % t) * g_row;
        FIND(out);
        out += (long)(row % t) * out_row;
#if WHOLE
        VEC(REAL) sums = (VEC(REAL))(0);
        for (uint c = 4 * me; c < e; c += 4 * LANES) sums += LOADV(DTYPE, g + c) * LOADV(DTYPE, out + c);
        sum = sums.s0 + sums.s1 + sums.s2 + sums.s3;
#else
        for (uint c = me; c < e; c += LANES) sum += LOAD(DTYPE, g, c * g_column) * LOAD(DTYPE, out, c);
#endif
    }
#if LANES > 1
    __local REAL parts[LANES * TEAMS];
    parts[get_local_id(0)] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me == 0)
        for (uint k = 1; k < LANES; k++) sum += parts[get_local_id(0) + k];
#endif
    if (row < rows && me == 0) {
#if STATISTICS
        const REAL logsum = lse[lse_offset + row];
        delta[2 * row] = logsum == -INFINITY ? 0 : logsum * LOG2E;
        delta[2 * row + 1] = sum;
#else
        delta[row] = sum;
#endif
    }
}
