// Softmax, or with LOG its logarithm, of rows. Subtracting the row's largest element keeps the exponentials from overflowing;
// a NaN makes the whole row NaN through the sum.

#ifndef LOG
#define LOG 0
#endif
// Exponentials wait in `out` until the sum is known; in half precision they would be rounded twice.
#ifndef KEEP_EXPONENTIALS
#define KEEP_EXPONENTIALS 0
#endif
#include "rows.h"
#include "exponential.h"

__kernel void softmax(OPERAND(x), RESULT(out), ROW_PARAMETERS, STRIDES(x), STRIDES(out)) {
    GROUP_SCRATCH(REAL)
    const ulong first = (ulong)get_group_id(0) * rows_each;
    const ulong last = min(first + rows_each, rows);
    for (ulong row = first; row < last; row++) {
        const long x_at = ROW_OF(x, row), out_at = ROW_OF(out, row);
        V tops = (V)(-INFINITY);
        FOR_VECTORS tops = fmax(tops, READ(x, x_at, i));
        REAL top = LANES_MAX(tops);
        FOR_TAIL top = fmax(top, LOAD(DTYPE, x, x_at + i));
        GROUP_MAX(top)
#if LOG
        // A row of minus infinities has no largest element to subtract.
        if (isinf(top)) top = 0;
#endif
        V sums = (V)(0);
        REAL sum = 0;
#if LOG
        FOR_VECTORS sums += EXP(READ(x, x_at, i) - top);
        FOR_TAIL sum += EXP1(LOAD(DTYPE, x, x_at + i) - top);
        sum += LANES_SUM(sums);
        GROUP_SUM(sum)
        const REAL shift = top, tail = log(sum);
        FOR_VECTORS WRITE(out, READ(x, x_at, i) - shift - tail, out_at, i);
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, x, x_at + i) - shift - tail, out, out_at + i);
#elif KEEP_EXPONENTIALS
        FOR_VECTORS {
            const V e = EXP(READ(x, x_at, i) - top);
            sums += e;
            WRITE(out, e, out_at, i);
        }
        FOR_TAIL {
            const REAL e = EXP1(LOAD(DTYPE, x, x_at + i) - top);
            sum += e;
            STORE(DTYPE, e, out, out_at + i);
        }
        sum += LANES_SUM(sums);
        GROUP_SUM(sum)
        const REAL scale = 1 / sum;
        FOR_VECTORS WRITE(out, READ(out, out_at, i) * scale, out_at, i);
        FOR_TAIL STORE(DTYPE, LOAD(DTYPE, out, out_at + i) * scale, out, out_at + i);
#else
        FOR_VECTORS sums += EXP(READ(x, x_at, i) - top);
        FOR_TAIL sum += EXP1(LOAD(DTYPE, x, x_at + i) - top);
        sum += LANES_SUM(sums);
        GROUP_SUM(sum)
        const REAL scale = 1 / sum;
        FOR_VECTORS WRITE(out, EXP(READ(x, x_at, i) - top) * scale, out_at, i);
        FOR_TAIL STORE(DTYPE, EXP1(LOAD(DTYPE, x, x_at + i) - top) * scale, out, out_at + i);
#endif
    }
}
