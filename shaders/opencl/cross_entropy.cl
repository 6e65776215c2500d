// Cross entropy of rows of logits with integer classes, and the logsumexp of each row. The row is read twice: once for its largest
// element, once for the sum of exponentials (and for the mean, with SMOOTHED). Rows whose class is ignored or outside
// give 0.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef SMOOTHED
#define SMOOTHED 0
#endif
#include "rows.h"
#include "exponential.h"

__kernel void cross_entropy(OPERAND(x), __global const STORAGE(INDEX_DTYPE) *target, const ulong target_offset,
                            __global REAL *loss, const ulong loss_offset, __global REAL *lse, const ulong lse_offset,
                            const long target_step, const long ignored, const REAL smoothing, ROW_PARAMETERS, STRIDES(x)) {
    GROUP_SCRATCH(REAL)
    const ulong first = (ulong)get_group_id(0) * rows_each;
    const ulong last = min(first + rows_each, rows);
    for (ulong row = first; row < last; row++) {
        const long x_at = ROW_OF(x, row);
        V tops = (V)(-INFINITY);
        FOR_VECTORS tops = fmax(tops, READ(x, x_at, i));
        REAL top = LANES_MAX(tops);
        FOR_TAIL top = fmax(top, LOAD(DTYPE, x, x_at + i));
        GROUP_MAX(top)
        if (isinf(top)) top = 0;
        V sums = (V)(0), logits = (V)(0);
        REAL sum = 0, logit = 0;
        FOR_VECTORS {
            const V value = READ(x, x_at, i);
            sums += EXP(value - top);
#if SMOOTHED
            logits += value;
#endif
        }
        FOR_TAIL {
            const REAL value = LOAD(DTYPE, x, x_at + i);
            sum += EXP1(value - top);
#if SMOOTHED
            logit += value;
#endif
        }
        sum += LANES_SUM(sums);
        GROUP_SUM(sum)
#if SMOOTHED
        logit += LANES_SUM(logits);
        GROUP_SUM(logit)
#endif
        if (GROUP_ME == 0) {
            const REAL total = log(sum) + top;
            const long picked = (long)target[(long)target_offset + (long)row * target_step];
            REAL value = 0;
            if (picked != ignored && picked >= 0 && picked < (long)length) {
                value = (1 - smoothing) * (total - LOAD(DTYPE, x, x_at + picked * x_step));
#if SMOOTHED
                value += smoothing * (total - logit / length);
#endif
            }
            loss[loss_offset + row] = value;
            lse[lse_offset + row] = total;
        }
    }
}
