// Softmax of rows, or log-softmax with LOG. The row's maximum is subtracted, so that exponentials do not overflow; a NaN makes
// the whole row NaN through the sum.

#ifndef LOG
#define LOG 0
#endif
// 1: exponentials are kept in `out` until the sum is complete. In half precision they would be rounded twice.
#ifndef KEEP_EXPONENTIALS
#define KEEP_EXPONENTIALS 0
#endif
#include "lib/rows.h"
#include "lib/dependent_launch.h"
#include "rowwise/row_exponentials.h"

typedef struct {
    STRIDE_MEMBERS(x);
    STRIDE_MEMBERS(out);
    ROW_MEMBERS;
} SoftmaxGeometry;

__kernel REQUIRED_GROUP_SIZE void rowwise_softmax(OPERAND(x), RESULT(out), const SoftmaxGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    DECLARE_STRIDES(out);
    GROUP_SCRATCH(REAL)
    DECLARE_ROW(x)
    FOR_ROWS {
        const long x_at = ROW_OF(x, row), out_at = ROW_OF(out, row);
        LOAD_ROW(x, x_at)
        REAL top, sum;
#if LOG
        ROW_EXPONENTIALS(x, x_at, top, sum)
        const REAL tail = log(sum);
        FOR_VECTORS {
            PREFETCH_NEXT_RESULT(out, out_at)
            WRITE(out, ROW_VALUE(x, x_at) - top - tail, out_at, i);
        }
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, x, x_at + i) - top - tail, out, out_at + i);
#elif ROW_VECTORS || KEEP_EXPONENTIALS
        ROW_TOP(x, x_at, top)
        DECLARE_ACCUMULATORS(sums, 0)
        FOR_VECTORS {
            PREFETCH_NEXT_ROW(x, x_at)
            const V e = EXP_FAST(ROW_VALUE(x, x_at) - top);
            sums[k] += e;
#if ROW_VECTORS
            SET_ROW_VALUE(x, e)
#else
            WRITE(out, e, out_at, i);
#endif
        }
        sum = SUM_ACCUMULATORS(sums);
        FOR_TAIL {
            const REAL e = EXP_FAST_SCALAR(LOAD(DTYPE, x, x_at + i) - top);
            sum += e;
            STORE(DTYPE, e, out, out_at + i);
        }
        GROUP_SUM(sum)
        const REAL scale = 1 / sum;
#if ROW_VECTORS
        FOR_VECTORS WRITE(out, ROW_VALUE(x, x_at) * scale, out_at, i);
#else
        FOR_VECTORS {
            PREFETCH_NEXT_RESULT(out, out_at)
            WRITE(out, READ(out, out_at, i) * scale, out_at, i);
        }
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, out, out_at + i) * scale, out, out_at + i);
#endif
#else
        ROW_EXPONENTIALS(x, x_at, top, sum)
        const REAL scale = 1 / sum;
        FOR_VECTORS {
            PREFETCH_NEXT_RESULT(out, out_at)
            WRITE(out, EXP_FAST(READ(x, x_at, i) - top) * scale, out_at, i);
        }
        FOR_TAIL STORE(DTYPE, EXP_FAST_SCALAR(LOAD(DTYPE, x, x_at + i) - top) * scale, out, out_at + i);
#endif
    }
}
