// Gradient of rowwise/norm.cl with respect to its input. With n = (x - mean) * scale and s = g * weight, a row of the
// result is scale * (s - mean(s) - n * mean(s * n)), without mean(s) for RMS norm.
//
// With WEIGHT_SUMS every group also sums g * n and g over its rows, into its part of partial (groups, 2, length), so that g
// and x are read from memory once. rowwise/norm_weight_grad.cl adds up the parts of all groups.
//
// With ADDEND a row of another tensor is added to the result, and with CAST the result is also stored as CAST_DTYPE. g may
// have another dtype than x, G_DTYPE.
//
// Lines under ROW_VECTORS run on GPUs only, and keep a row and these sums in registers. CPUs run the other lines, with the
// sums in the cache. GPUs run them too if a row does not fit in registers, but then without WEIGHT_SUMS.

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
#ifndef G_DTYPE
#define G_DTYPE DTYPE
#endif
#ifndef ADDEND
#define ADDEND 0
#endif
#ifndef CAST
#define CAST 0
#endif
#ifndef CAST_DTYPE
#define CAST_DTYPE DTYPE
#endif
#include "lib/rows.h"
#include "lib/dependent_launch.h"

#if WEIGHT
#define SCALED(value) ((value) * READ_SMALL(WEIGHT_DTYPE, weight, i))
#define SCALED1(value) ((value) * LOAD(WEIGHT_DTYPE, weight, weight_offset + i))
#else
#define SCALED(value) (value)
#define SCALED1(value) (value)
#endif

#if WEIGHT_SUMS && !ROW_VECTORS
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

// A statement of its own: the product before the addition is rounded, as if a kernel of its own added.
#if ADDEND
#define ADD_ADDEND(value) value += ROW_VALUE(addend, addend_at);
#define ADD_ADDEND1(value) value += LOAD(DTYPE, addend, addend_at + i);
#else
#define ADD_ADDEND(value)
#define ADD_ADDEND1(value)
#endif

#if CAST
#define WRITE_CAST(value) WRITE_AS(CAST_DTYPE, cast, value, cast_at, i);
#define WRITE_CAST1(value) STORE(CAST_DTYPE, value, cast, cast_at + i);
#else
#define WRITE_CAST(value)
#define WRITE_CAST1(value)
#endif

typedef struct {
    STRIDE_MEMBERS(x);
    STRIDE_MEMBERS(g);
    STRIDE_MEMBERS(dx);
#if ADDEND
    STRIDE_MEMBERS(addend);
#endif
#if CAST
    STRIDE_MEMBERS(cast);
#endif
    ROW_MEMBERS;
} NormGradGeometry;

__kernel REQUIRED_GROUP_SIZE void rowwise_norm_grad(
    __global const STORAGE(G_DTYPE) *g, const ulong g_offset, OPERAND(x),
#if WEIGHT
    __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
#if CENTRED
    __global const REAL *means, const ulong means_offset,
#endif
    __global const REAL *scales, const ulong scales_offset,
#if ADDEND
    OPERAND(addend),
#endif
    RESULT(dx),
#if CAST
    __global STORAGE(CAST_DTYPE) *cast, const ulong cast_offset,
#endif
#if WEIGHT_SUMS
    __global REAL *partial,
#endif
    const NormGradGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS;
    DECLARE_STRIDES(g);
    DECLARE_STRIDES(x);
    DECLARE_STRIDES(dx);
#if ADDEND
    DECLARE_STRIDES(addend);
    DECLARE_ROW(addend)
#endif
#if CAST
    DECLARE_STRIDES(cast);
#endif
    GROUP_SCRATCH(REAL)
#if WEIGHT_SUMS
    __global REAL *weight_sums = partial + (ulong)get_group_id(0) * 2 * length, *bias_sums = weight_sums + length;
#if ROW_VECTORS
    V weight_vectors[ROW_VECTORS], bias_vectors[ROW_VECTORS];
#pragma unroll
    for (uint h = 0; h < ROW_VECTORS; h++) weight_vectors[h] = bias_vectors[h] = (V)(0);
#else
    for (uint i = 0; i < 2 * length; i++) weight_sums[i] = 0;
#endif
#endif
    DECLARE_ROW(g)
    DECLARE_ROW(x)
    FOR_ROWS {
        const long g_at = ROW_OF(g, row), x_at = ROW_OF(x, row), dx_at = ROW_OF(dx, row);
#if ADDEND
        const long addend_at = ROW_OF(addend, row);
#endif
#if CAST
        const long cast_at = ROW_OF(cast, row);
#endif
#if CENTRED
        const REAL mean = means[means_offset + row];
#else
        const REAL mean = 0;
#endif
        const REAL scale = scales[scales_offset + row];
        LOAD_ROW_AS(G_DTYPE, g, g_at)
        LOAD_ROW(x, x_at)
#if ADDEND
        LOAD_ROW(addend, addend_at)
#endif
        DECLARE_ACCUMULATORS(sums, 0)
        DECLARE_ACCUMULATORS(products, 0)
        FOR_VECTORS {
            PREFETCH_NEXT_ROW(g, g_at)
            const V slope = ROW_VALUE_AS(G_DTYPE, g, g_at), s = SCALED(slope), centred = ROW_VALUE(x, x_at) - mean;
#if WEIGHT_SUMS && ROW_VECTORS
            weight_vectors[slot] += slope * (centred * scale);
            bias_vectors[slot] += slope;
#endif
            sums[k] += s;
            products[k] += s * centred;
            SET_ROW_VALUE(g, s)
            SET_ROW_VALUE(x, centred)
        }
        REAL sum = SUM_ACCUMULATORS(sums), product = SUM_ACCUMULATORS(products);
        FOR_TAIL {
            const REAL s = SCALED1(LOAD(G_DTYPE, g, g_at + i));
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
#if ROW_VECTORS
        FOR_VECTORS {
            const V slope = ROW_VALUE(g, g_at), centred = ROW_VALUE(x, x_at);
            V value = (slope - sum - centred * product) * scale;
            ADD_ADDEND(value)
            WRITE(dx, value, dx_at, i);
            WRITE_CAST(value)
        }
#else
        FOR_VECTORS {
            PREFETCH_NEXT_ROW(x, x_at)
            PREFETCH_NEXT_RESULT(dx, dx_at)
            const V slope = READ_AS(G_DTYPE, g, g_at, i), centred = READ(x, x_at, i) - mean;
            V value = (SCALED(slope) - sum - centred * product) * scale;
            ADD_ADDEND(value)
            WRITE(dx, value, dx_at, i);
            WRITE_CAST(value)
            ADD_SLOPES(slope, centred * scale)
        }
        FOR_TAIL {
            const REAL slope = LOAD(G_DTYPE, g, g_at + i), centred = LOAD(DTYPE, x, x_at + i) - mean;
            REAL value = (SCALED1(slope) - sum - centred * product) * scale;
            ADD_ADDEND1(value)
            STORE(DTYPE, value, dx, dx_at + i);
            WRITE_CAST1(value)
            ADD_SLOPES1(slope, centred * scale)
        }
#endif
    }
#if WEIGHT_SUMS && ROW_VECTORS
    FOR_VECTORS {
        VECTOR_STORE(REAL, weight_vectors[slot], weight_sums + i * WIDTH);
        if (CENTRED) VECTOR_STORE(REAL, bias_vectors[slot], bias_sums + i * WIDTH);
    }
#endif
}
