// Layer norm (CENTRED 1) and root-mean-square norm (CENTRED 0) of rows, with the statistics that the gradient needs. The variance
// is taken around the mean in a second pass: sums of squares would cancel.

#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef WEIGHT
#define WEIGHT 1
#endif
#ifndef BIAS
#define BIAS 1
#endif
#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE DTYPE
#endif
#ifndef BIAS_DTYPE
#define BIAS_DTYPE DTYPE
#endif
#include "rows.h"

#if WIDTH == 1
#define SCALE_OF(D, name, i) LOAD(D, name + name##_offset, i)
#else
#define SCALE_OF(D, name, i) LOADV(D, name + name##_offset + (i) * WIDTH)
#endif

__kernel void norm_rows(OPERAND(x),
#if WEIGHT
                        __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
#if BIAS
                        __global const STORAGE(BIAS_DTYPE) *bias, const ulong bias_offset,
#endif
                        RESULT(out),
#if CENTRED
                        __global REAL *means, const ulong means_offset,
#endif
                        __global REAL *scales, const ulong scales_offset, const REAL eps, ROW_PARAMETERS, STRIDES(x),
                        STRIDES(out)) {
    GROUP_SCRATCH(REAL)
    const ulong first = (ulong)get_group_id(0) * rows_each;
    const ulong last = min(first + rows_each, rows);
    for (ulong row = first; row < last; row++) {
        const long x_at = ROW_OF(x, row), out_at = ROW_OF(out, row);
        REAL mean = 0;
#if CENTRED
        {
            V sums = (V)(0);
            FOR_VECTORS sums += READ(x, x_at, i);
            FOR_TAIL mean += LOAD(DTYPE, x, x_at + i);
            mean += LANES_SUM(sums);
            GROUP_SUM(mean)
            mean /= length;
        }
#endif
        V squares = (V)(0);
        REAL variance = 0;
        FOR_VECTORS {
            const V centred = READ(x, x_at, i) - mean;
            squares += centred * centred;
        }
        FOR_TAIL {
            const REAL centred = LOAD(DTYPE, x, x_at + i) - mean;
            variance += centred * centred;
        }
        variance += LANES_SUM(squares);
        GROUP_SUM(variance)
        const REAL scale = 1 / sqrt(variance / length + eps);
        FOR_VECTORS {
            V value = (READ(x, x_at, i) - mean) * scale;
#if WEIGHT
            value *= SCALE_OF(WEIGHT_DTYPE, weight, i);
#endif
#if BIAS
            value += SCALE_OF(BIAS_DTYPE, bias, i);
#endif
            WRITE(out, value, out_at, i);
        }
        FOR_TAIL {
            REAL value = (LOAD(DTYPE, x, x_at + i) - mean) * scale;
#if WEIGHT
            value *= LOAD(WEIGHT_DTYPE, weight, weight_offset + i);
#endif
#if BIAS
            value += LOAD(BIAS_DTYPE, bias, bias_offset + i);
#endif
            STORE(DTYPE, value, out, out_at + i);
        }
        if (GROUP_ME == 0) {
#if CENTRED
            means[means_offset + row] = mean;
#endif
            scales[scales_offset + row] = scale;
        }
    }
}
