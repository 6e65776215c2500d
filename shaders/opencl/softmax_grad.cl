// Gradient of softmax from its result: out * (g - sum(g * out)), or with LOG that of its logarithm: g - exp(out) * sum(g).

#ifndef LOG
#define LOG 0
#endif
#include "rows.h"
#include "exponential.h"

__kernel void softmax_grad(OPERAND(g), OPERAND(out), RESULT(dx), ROW_PARAMETERS, STRIDES(g), STRIDES(out), STRIDES(dx)) {
    GROUP_SCRATCH(REAL)
    const ulong first = (ulong)get_group_id(0) * rows_each;
    const ulong last = min(first + rows_each, rows);
    for (ulong row = first; row < last; row++) {
        const long g_at = ROW_OF(g, row), out_at = ROW_OF(out, row), dx_at = ROW_OF(dx, row);
        V sums = (V)(0);
        REAL sum = 0;
#if LOG
        FOR_VECTORS sums += READ(g, g_at, i);
        FOR_TAIL sum += LOAD(DTYPE, g, g_at + i);
#else
        FOR_VECTORS sums += READ(g, g_at, i) * READ(out, out_at, i);
        FOR_TAIL sum += LOAD(DTYPE, g, g_at + i) * LOAD(DTYPE, out, out_at + i);
#endif
        sum += LANES_SUM(sums);
        GROUP_SUM(sum)
#if LOG
        FOR_VECTORS WRITE(dx, READ(g, g_at, i) - EXP(READ(out, out_at, i)) * sum, dx_at, i);
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, g, g_at + i) - EXP1(LOAD(DTYPE, out, out_at + i)) * sum, dx, dx_at + i);
#else
        FOR_VECTORS WRITE(dx, READ(out, out_at, i) * (READ(g, g_at, i) - sum), dx_at, i);
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, out, out_at + i) * (LOAD(DTYPE, g, g_at + i) - sum), dx, dx_at + i);
#endif
    }
}
