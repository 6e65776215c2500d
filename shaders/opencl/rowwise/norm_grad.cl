// Gradient of rowwise/norm.cl with respect to its input. With n = (x - mean) * scale and s = g * weight, each row gives
// scale * (s - mean(s) - n * mean(s * n)), without the second term when the norm does not centre.
//
// With WEIGHT_SUMS every group also sums g * n and g over its rows, into its share of partial (groups, 2, length), so that g
// and x are read from memory once. With HELD these sums are kept in registers, else, for CPUs, they stay in the cache.
// rowwise/norm_weight_grad.cl adds them up.

#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef WEIGHT
#define WEIGHT 1
#endif
#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE DTYPE
#endif
#ifndef WEIGHT_SUMS
#define WEIGHT_SUMS 0
#endif
#include "lib/rows.h"

#if WEIGHT
#define SCALED(value) ((value) * READ_SMALL(WEIGHT_DTYPE, weight, i))
#define SCALED1(value) ((value) * LOAD(WEIGHT_DTYPE, weight, weight_offset + i))
#else
#define SCALED(value) (value)
#define SCALED1(value) (value)
#endif

#if WEIGHT_SUMS && !HELD
#define ADD(sums, value) VECTOR_STORE(REAL, VECTOR_LOAD(REAL, sums + i * WIDTH) + value, sums + i * WIDTH);
#define ADD_SLOPES(slope, normal) \
    ADD(weight_sums, (slope) * (normal)) \
    if (CENTRED) ADD(bias_sums, slope)
#define ADD_SLOPES1(slope, normal) \
    weight_sums[i] += (slope) * (normal); \
    if (CENTRED) bias_sums[i] += slope;
#else
#define ADD_SLOPES(slope, normal)
#define ADD_SLOPES1(slope, normal)
#endif

__kernel SHARED_ROWS void rowwise_norm_grad(OPERAND(g), OPERAND(x),
#if WEIGHT
                             __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
#if CENTRED
                             __global const REAL *means, const ulong means_offset,
#endif
                             __global const REAL *scales, const ulong scales_offset, RESULT(dx),
#if WEIGHT_SUMS
                             __global REAL *partial,
#endif
                             ROW_PARAMETERS, STRIDES(g), STRIDES(x), STRIDES(dx)) {
    GROUP_SCRATCH(REAL)
#if WEIGHT_SUMS
    __global REAL *weight_sums = partial + (ulong)get_group_id(0) * 2 * length, *bias_sums = weight_sums + length;
#if HELD
    V weight_held[HELD], bias_held[HELD];
#pragma unroll
    for (uint h = 0; h < HELD; h++) weight_held[h] = bias_held[h] = (V)(0);
#else
    for (uint i = 0; i < 2 * length; i++) weight_sums[i] = 0;
#endif
#endif
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
            NEXT_ROW(g, g_at)
            const V slope = VALUE(g, g_at), s = SCALED(slope), centred = VALUE(x, x_at) - mean;
#if WEIGHT_SUMS && HELD
            weight_held[held] += slope * (centred * scale);
            bias_held[held] += slope;
#endif
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
        FOR_VECTORS {
            NEXT_ROW(x, x_at)
            NEXT_RESULT(dx, dx_at)
            const V slope = READ(g, g_at, i), centred = READ(x, x_at, i) - mean;
            WRITE(dx, (SCALED(slope) - sum - centred * product) * scale, dx_at, i);
            ADD_SLOPES(slope, centred * scale)
        }
        FOR_TAIL {
            const REAL slope = LOAD(DTYPE, g, g_at + i), centred = LOAD(DTYPE, x, x_at + i) - mean;
            STORE(DTYPE, (SCALED1(slope) - sum - centred * product) * scale, dx, dx_at + i);
            ADD_SLOPES1(slope, centred * scale)
        }
#endif
    }
#if WEIGHT_SUMS && HELD
    FOR_VECTORS {
        VECTOR_STORE(REAL, weight_held[held], weight_sums + i * WIDTH);
        if (CENTRED) VECTOR_STORE(REAL, bias_held[held], bias_sums + i * WIDTH);
    }
#endif
}
