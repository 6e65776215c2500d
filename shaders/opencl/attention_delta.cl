// What attention's gradient needs of each query besides its logsumexp: delta = sum over features of g * out.

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
#include "heads.h"

__kernel __attribute__((reqd_work_group_size(LANES *TEAMS, 1, 1))) void attention_delta(
    OPERAND(DTYPE, g), OPERAND(DTYPE, out), __global REAL *delta, const uint rows, const uint t, const uint e,
    const uint batch1, const uint batch2, STRIDES(g)) {
    const uint me = get_local_id(0) % LANES;
    const uint row = get_group_id(0) * TEAMS + get_local_id(0) / LANES;
    REAL sum = 0;
    if (row < rows) {
        HEAD_NUMBERS(row / t);
        FIND(g);
        g += (long)(row % t) * g_row;
        out += out_offset + (ulong)row * e;
        for (uint c = me; c < e; c += LANES) sum += LOAD(DTYPE, g, c * g_column) * LOAD(DTYPE, out, c);
    }
#if LANES > 1
    __local REAL parts[LANES * TEAMS];
    parts[get_local_id(0)] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me == 0)
        for (uint k = 1; k < LANES; k++) sum += parts[get_local_id(0) + k];
#endif
    if (row < rows && me == 0) delta[row] = sum;
}
