// Mean cross entropy of few logits with integer classes, and its gradient, by one group, whose work-items take whole
// rows. A row whose class is out of range makes the mean NaN; rows whose class is `ignored` do not count.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef REAL
#define REAL float
#endif
#include "lib/dtypes.h"
#include "lib/group_reduce.h"

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void rowwise_mean_cross_entropy(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(INDEX_DTYPE) *target,
    const ulong target_offset, __global REAL *out, const ulong out_offset, __global STORAGE(DTYPE) *dx,
    const ulong dx_offset, const uint rows, const uint classes, const long x_row, const long x_step,
    const long target_step, const long ignored, const REAL smoothing) {
    GROUP_SCRATCH(REAL)
    target += target_offset;
    REAL count = 0, total = 0;
    for (uint row = LANE_ID; row < rows; row += GROUP) count += (long)target[row * target_step] != ignored;
    GROUP_SUM(count)
    const REAL scale = 1 / count, even = smoothing / classes;
    for (uint row = LANE_ID; row < rows; row += GROUP) {
        const long at = (long)x_offset + row * x_row, picked = (long)target[row * target_step];
        const ulong dx_at = dx_offset + (ulong)row * classes;
        const bool inside = picked >= 0 && picked < (long)classes, used = picked != ignored && inside;
        const REAL unused = picked == ignored ? 0 : NAN;
        REAL top = -INFINITY, sum = 0, logits = 0;
        for (uint c = 0; c < classes; c++) top = fmax(top, LOAD(DTYPE, x, at + c * x_step));
        for (uint c = 0; c < classes; c++) {
            const REAL logit = LOAD(DTYPE, x, at + c * x_step) - top;
            sum += exp(logit);
            logits += logit;
        }
        const REAL logarithm = log(sum);
        if (used) {
            total += (1 - smoothing) * (logarithm - (LOAD(DTYPE, x, at + picked * x_step) - top));
            if (smoothing != 0) total += smoothing * (logarithm - logits / classes);
        } else {
            total += unused;
        }
        for (uint c = 0; c < classes; c++) {
            const REAL hot = c == picked ? 1 - smoothing : 0;
            const REAL value = exp(LOAD(DTYPE, x, at + c * x_step) - top - logarithm) - hot - even;
            STORE(DTYPE, used ? value * scale : unused, dx, dx_at + c);
        }
    }
    GROUP_SUM(total)
    if (LANE_ID == 0) out[out_offset] = total / count;
}
