// Gradient of softmax from its result: out * (g - sum(g * out)), or with LOG that of its logarithm: g - exp(out) * sum(g).

#ifndef LOG
#define LOG 0
#endif
#include "lib/rows.h"
#include "lib/exponential.h"

__kernel SHARED_ROWS void rowwise_softmax_grad(OPERAND(g), OPERAND(out), RESULT(dx), ROW_PARAMETERS, STRIDES(g), STRIDES(out), STRIDES(dx)) {
    GROUP_SCRATCH(REAL)
    HELD_ROW(g)
    HELD_ROW(out)
    FOR_ROWS {
        const long g_at = ROW_OF(g, row), out_at = ROW_OF(out, row), dx_at = ROW_OF(dx, row);
        HOLD(g, g_at)
        HOLD(out, out_at)
        CHAIN(sums, 0)
#if LOG
        FOR_VECTORS {
            NEXT_ROW(g, g_at)
            sums[k] += VALUE(g, g_at);
        }
        REAL sum = CHAIN_SUM(sums);
        FOR_TAIL sum += LOAD(DTYPE, g, g_at + i);
        GROUP_SUM(sum)
        FOR_VECTORS {
            NEXT_ROW(out, out_at)
            NEXT_RESULT(dx, dx_at)
            WRITE(dx, VALUE(g, g_at) - EXP(VALUE(out, out_at)) * sum, dx_at, i);
        }
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, g, g_at + i) - EXP1(LOAD(DTYPE, out, out_at + i)) * sum, dx, dx_at + i);
#else
        FOR_VECTORS {
            NEXT_ROW(g, g_at)
            sums[k] += VALUE(g, g_at) * VALUE(out, out_at);
        }
        REAL sum = CHAIN_SUM(sums);
        FOR_TAIL sum += LOAD(DTYPE, g, g_at + i) * LOAD(DTYPE, out, out_at + i);
        GROUP_SUM(sum)
        FOR_VECTORS {
            NEXT_ROW(out, out_at)
            NEXT_RESULT(dx, dx_at)
            WRITE(dx, VALUE(out, out_at) * (VALUE(g, g_at) - sum), dx_at, i);
        }
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, out, out_at + i) * (LOAD(DTYPE, g, g_at + i) - sum), dx, dx_at + i);
#endif
    }
}
