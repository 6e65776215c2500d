// Gradient of softmax from its result, out * (g - sum(g * out)), or with LOG the gradient of log-softmax, g - exp(out)
// * sum(g).

#ifndef LOG
#define LOG 0
#endif
#include "lib/rows.h"
#include "lib/dependent_launch.h"
#include "lib/exponential.h"

typedef struct {
    STRIDE_MEMBERS(g);
    STRIDE_MEMBERS(out);
    STRIDE_MEMBERS(dx);
    ROW_MEMBERS;
} SoftmaxGradGeometry;

__kernel REQUIRED_GROUP_SIZE void rowwise_softmax_grad(OPERAND(g), OPERAND(out), RESULT(dx),
                                                       const SoftmaxGradGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS;
    DECLARE_STRIDES(g);
    DECLARE_STRIDES(out);
    DECLARE_STRIDES(dx);
    GROUP_SCRATCH(REAL)
    DECLARE_ROW(g)
    DECLARE_ROW(out)
    FOR_ROWS {
        const long g_at = ROW_OF(g, row), out_at = ROW_OF(out, row), dx_at = ROW_OF(dx, row);
        LOAD_ROW(g, g_at)
        LOAD_ROW(out, out_at)
        DECLARE_ACCUMULATORS(sums, 0)
#if LOG
        FOR_VECTORS {
            PREFETCH_NEXT_ROW(g, g_at)
            sums[k] += ROW_VALUE(g, g_at);
        }
        REAL sum = SUM_ACCUMULATORS(sums);
        FOR_TAIL sum += LOAD(DTYPE, g, g_at + i);
        GROUP_SUM(sum)
        FOR_VECTORS {
            PREFETCH_NEXT_ROW(out, out_at)
            PREFETCH_NEXT_RESULT(dx, dx_at)
            WRITE(dx, ROW_VALUE(g, g_at) - EXP(ROW_VALUE(out, out_at)) * sum, dx_at, i);
        }
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, g, g_at + i) - EXP_SCALAR(LOAD(DTYPE, out, out_at + i)) * sum, dx, dx_at + i);
#else
        FOR_VECTORS {
            PREFETCH_NEXT_ROW(g, g_at)
            sums[k] += ROW_VALUE(g, g_at) * ROW_VALUE(out, out_at);
        }
        REAL sum = SUM_ACCUMULATORS(sums);
        FOR_TAIL sum += LOAD(DTYPE, g, g_at + i) * LOAD(DTYPE, out, out_at + i);
        GROUP_SUM(sum)
        FOR_VECTORS {
            PREFETCH_NEXT_ROW(out, out_at)
            PREFETCH_NEXT_RESULT(dx, dx_at)
            WRITE(dx, ROW_VALUE(out, out_at) * (ROW_VALUE(g, g_at) - sum), dx_at, i);
        }
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, out, out_at + i) * (LOAD(DTYPE, g, g_at + i) - sum), dx, dx_at + i);
#endif
    }
}
