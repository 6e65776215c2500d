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
#define SCALED(value) ((value) * READ_SMALL(WEIGHT_DTYPE, weight, i))
#define SCALED1(value) ((value) * LOAD(WEIGHT_DTYPE, weight, weight_offset + i))
#else
#define SCALED(value) (value)
#define SCALED1(value) (value)
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
    HELD_ROW(g)
    HELD_ROW(x)
    FOR_ROWS {
        const long g_at = ROW_OF(g, row), x_at = ROW_OF(x, row), dx_at = ROW_OF(dx, row);
#if CENTRED
        const REAL mean = means[means_offset + row];
#else
        const REAL mean = 0;
#endif
        const REAL scale = scales[scales_offset + row];
        HOLD(g, g_at)
        HOLD(x, x_at)
        CHAIN(sums, 0)
        CHAIN(products, 0)
        FOR_VECTORS {
            const V s = SCALED(VALUE(g, g_at)), centred = VALUE(x, x_at) - mean;
            sums[k] += s;
            products[k] += s * centred;
            KEEP(g, s)
            KEEP(x, centred)
        }
        REAL sum = CHAIN_SUM(sums), product = CHAIN_SUM(products);
        FOR_TAIL {
            const REAL s = SCALED1(LOAD(DTYPE, g, g_at + i));
            sum += s;
            product += s * (LOAD(DTYPE, x, x_at + i) - mean);
        }
        GROUP_SUM(product)
        product *= scale * scale / length;
#if CENTRED
        GROUP_SUM(sum)
        sum /= length;
#else
        sum = 0;
#endif
#if HELD
        FOR_VECTORS WRITE(dx, (VALUE(g, g_at) - sum - VALUE(x, x_at) * product) * scale, dx_at, i);
#else
        FOR_VECTORS WRITE(dx, (SCALED(READ(g, g_at, i)) - sum - (READ(x, x_at, i) - mean) * product) * scale, dx_at, i);
        FOR_TAIL STORE(DTYPE, (SCALED1(LOAD(DTYPE, g, g_at + i)) - sum - (LOAD(DTYPE, x, x_at + i) - mean) * product) * scale, dx,
                       dx_at + i);
#endif
    }
}
