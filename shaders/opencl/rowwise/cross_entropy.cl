// Cross entropy of rows of logits with integer classes, and the logsumexp of each row. The loss of a row is 0 if its
// class is ignored, and NaN if its class is out of range.

#include "lib/rows.h"
#include "lib/dependent_launch.h"
#include "rowwise/row_exponentials.h"
#include "rowwise/cross_entropy_rows.h"

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
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    const long target_step = geometry.target_step, ignored = geometry.ignored;
    GROUP_SCRATCH(REAL)
    DECLARE_ROW(x)
    FOR_ROWS {
        const long x_at = ROW_OF(x, row);
        LOAD_ROW(x, x_at)
        REAL top, sum, logits = 0;
        ROW_EXPONENTIALS(x, x_at, top, sum)
        SUM_OF_LOGITS(x, x_at, top, logits)
        if (LANE_ID == 0) {
            // Relative to the largest logit: adding that could round the logarithm away.
            const REAL total = log(sum);
            const long picked = (long)target[(long)target_offset + (long)row * target_step];
            ROW_LOSS(value, x, x_at, picked, top, total, logits)
            loss[loss_offset + row] = value;
            lse[lse_offset + 2 * (ulong)row] = top;
            lse[lse_offset + 2 * (ulong)row + 1] = total;
        }
    }
}
