// Cross entropy of rows of logits with integer classes, and the logsumexp of each row. The loss of a row is 0 if its
// class is ignored, and NaN if its class is out of range. SMOOTHED, for label smoothing, also sums the logits.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef SMOOTHED
#define SMOOTHED 0
#endif
#include "lib/rows.h"
#include "rowwise/row_exponentials.h"

typedef struct {
    long target_step, ignored;
    STRIDE_MEMBERS(x);
    ROW_MEMBERS;
} CrossEntropyGeometry;

__kernel REQUIRED_GROUP_SIZE void rowwise_cross_entropy(OPERAND(x), __global const STORAGE(INDEX_DTYPE) *target,
                                                        const ulong target_offset, __global REAL *loss,
                                                        const ulong loss_offset, __global REAL *lse,
                                                        const ulong lse_offset, const REAL smoothing,
                                                        const CrossEntropyGeometry geometry) {
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    const long target_step = geometry.target_step, ignored = geometry.ignored;
    GROUP_SCRATCH(REAL)
    DECLARE_ROW(x)
    FOR_ROWS {
        const long x_at = ROW_OF(x, row);
        LOAD_ROW(x, x_at)
        REAL top, sum;
        ROW_EXPONENTIALS(x, x_at, top, sum)
#if SMOOTHED
        DECLARE_ACCUMULATORS(logits, 0)
        FOR_VECTORS logits[k] += ROW_VALUE(x, x_at) - top;
        REAL logit = SUM_ACCUMULATORS(logits);
        FOR_TAIL logit += LOAD(DTYPE, x, x_at + i) - top;
        GROUP_SUM(logit)
#endif
        if (LANE_ID == 0) {
            // Relative to the largest logit: adding that could round the logarithm away.
            const REAL total = log(sum);
            const long picked = (long)target[(long)target_offset + (long)row * target_step];
            REAL value = picked == ignored ? 0 : NAN;
            if (picked != ignored && picked >= 0 && picked < (long)length) {
                value = (1 - smoothing) * (total - (LOAD(DTYPE, x, x_at + picked * x_step) - top));
#if SMOOTHED
                value += smoothing * (total - logit / length);
#endif
            }
            loss[loss_offset + row] = value;
            lse[lse_offset + 2 * (ulong)row] = top;
            lse[lse_offset + 2 * (ulong)row + 1] = total;
        }
    }
}
