// Gradient of norm_rows.cl with respect to its input. With n = (x - mean) * scale and s = g * weight, each row gives
// scale * (s - mean(s) - n * mean(s * n)), without the second term when the norm does not centre.

#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef WEIGHT
#define WEIGHT 1
#endif
#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE DTYPE
#endif
#include "rows.h"

#if WEIGHT
#if WIDTH == 1
#define SCALED(value, i) ((value) * LOAD(WEIGHT_DTYPE, weight + weight_offset, i))
#else
#define SCALED(value, i) ((value) * LOADV(WEIGHT_DTYPE, weight + weight_offset + (i) * WIDTH))
#endif
#define SCALED1(value, i) ((value) * LOAD(WEIGHT_DTYPE, weight + weight_offset, i))
#else
#define SCALED(value, i) (value)
#define SCALED1(value, i) (value)
#endif

__kernel void norm_rows_grad(OPERAND(g), OPERAND(x),
#if WEIGHT
                             __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
#if CENTRED
                             __global const REAL *means, const ulong means_offset,
#endif
                             __global const REAL *scales, const ulong scales_offset, RESULT(dx), ROW_PARAMETERS, STRIDES(g),
                             STRIDES(x), STRIDES(dx)) {
    GROUP_SCRATCH(REAL)
    const ulong first = (ulong)get_group_id(0) * rows_each;
    const ulong last = min(first + rows_each, rows);
    for (ulong row = first; row < last; row++) {
        const long g_at = ROW_OF(g, row), x_at = ROW_OF(x, row), dx_at = ROW_OF(dx, row);
#if CENTRED
        const REAL mean = means[means_offset + row];
#else
        const REAL mean = 0;
#endif
        const REAL scale = scales[scales_offset + row];
        V sums = (V)(0), products = (V)(0);
        REAL sum = 0, product = 0;
        FOR_VECTORS {
            const V s = SCALED(READ(g, g_at, i), i);
            sums += s;
            products += s * (READ(x, x_at, i) - mean);
        }
        FOR_TAIL {
            const REAL s = SCALED1(LOAD(DTYPE, g, g_at + i), i);
            sum += s;
            product += s * (LOAD(DTYPE, x, x_at + i) - mean);
        }
        product += LANES_SUM(products);
        GROUP_SUM(product)
        product *= scale * scale / length;
#if CENTRED
        sum += LANES_SUM(sums);
        GROUP_SUM(sum)
        sum /= length;
#else
        sum = 0;
#endif
        FOR_VECTORS WRITE(dx, (SCALED(READ(g, g_at, i), i) - sum - (READ(x, x_at, i) - mean) * product) * scale, dx_at, i);
        FOR_TAIL STORE(DTYPE, (SCALED1(LOAD(DTYPE, g, g_at + i), i) - sum - (LOAD(DTYPE, x, x_at + i) - mean) * product) * scale,
                       dx, dx_at + i);
    }
}
