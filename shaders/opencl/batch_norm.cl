// Batch norm of x (images, channels, inner), inner being contiguous. A group of GROUP work-items gathers the statistics of one
// channel in one part of the images, the variance around the part's mean in a second pass; parts are joined by another launch
// (Chan et al., 1979). Then groups of a further one apply them to some images each. Without PARTIAL the first launch gives the
// result.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
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
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE WEIGHT_DTYPE
#endif
#ifndef PARTIAL
#define PARTIAL 0
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"
#include "groups.h"

typedef VEC(REAL) V;
#include "lanes.h"

#if WIDTH == 1
#define READ(name, i) LOAD(DTYPE, name, i)
#define WRITE(name, value, i) STORE(DTYPE, value, name, i)
#else
#define READ(name, i) LOADV(DTYPE, (name) + (i))
#define WRITE(name, value, i) STOREV(DTYPE, value, (name) + (i))
#endif
#define WHOLE (inner / WIDTH * WIDTH)
#define FOR_VECTORS for (uint i = GROUP_ME * WIDTH; i < WHOLE; i += GROUP * WIDTH)
#define FOR_TAIL for (uint i = WHOLE + GROUP_ME; i < inner; i += GROUP)
#define SHAPE const uint images, const uint channels, const uint inner
#define STEPS(name) const long name##_image, const long name##_channel

#define PART_OF_IMAGES \
    const uint channel = get_group_id(0), part = get_group_id(1); \
    const uint first = min(part * each, images), last = min(first + each, images);

#if PARTIAL
// Means, then sums of squares around them, (parts, channels) each.
__kernel void batch_statistics(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *partial, SHAPE,
                               STEPS(x), const uint each) {
#else
__kernel void batch_statistics(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *means,
                               const ulong means_offset, __global REAL *variances, const ulong variances_offset, SHAPE,
                               STEPS(x), const uint each) {
#endif
    GROUP_SCRATCH(REAL)
    PART_OF_IMAGES
    x += (long)x_offset + channel * x_channel;
    const REAL count = (REAL)(last - first) * inner;
    V sums = (V)(0);
    REAL mean = 0;
    for (uint image = first; image < last; image++) {
        __global const STORAGE(DTYPE) *plane = x + image * x_image;
        FOR_VECTORS sums += READ(plane, i);
        FOR_TAIL mean += LOAD(DTYPE, plane, i);
    }
    mean += LANES_SUM(sums);
    GROUP_SUM(mean)
    mean /= count;
    V squares = (V)(0);
    REAL variance = 0;
    for (uint image = first; image < last; image++) {
        __global const STORAGE(DTYPE) *plane = x + image * x_image;
        FOR_VECTORS {
            const V centred = READ(plane, i) - mean;
            squares += centred * centred;
        }
        FOR_TAIL {
            const REAL centred = LOAD(DTYPE, plane, i) - mean;
            variance += centred * centred;
        }
    }
    variance += LANES_SUM(squares);
    GROUP_SUM(variance)
    if (GROUP_ME == 0) {
#if PARTIAL
        partial[part * channels + channel] = mean;
        partial[(get_num_groups(1) + part) * channels + channel] = variance;
#else
        means[means_offset + channel] = mean;
        variances[variances_offset + channel] = variance / count;
#endif
    }
}

__kernel void batch_join_statistics(__global const REAL *partial, __global REAL *means, const ulong means_offset,
                                    __global REAL *variances, const ulong variances_offset, SHAPE, const uint each,
                                    const uint parts) {
    const uint channel = get_global_id(0);
    if (channel >= channels) return;
    REAL mean = 0, squares = 0, seen = 0;
    for (uint part = 0; part < parts; part++) {
        const REAL more = (REAL)(min((part + 1) * each, images) - part * each) * inner;
        const REAL difference = partial[part * channels + channel] - mean;
        seen += more;
        mean += difference * (more / seen);
        squares += partial[(parts + part) * channels + channel] + difference * difference * (more * (seen - more) / seen);
    }
    means[means_offset + channel] = mean;
    variances[variances_offset + channel] = squares / seen;
}

__kernel void batch_apply(__global const STORAGE(DTYPE) *x, const ulong x_offset,
#if WEIGHT
                          __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
#if BIAS
                          __global const STORAGE(BIAS_DTYPE) *bias, const ulong bias_offset,
#endif
                          __global STORAGE(DTYPE) *out, const ulong out_offset, __global const REAL *means,
                          const ulong means_offset, __global const REAL *variances, const ulong variances_offset,
                          const REAL eps, SHAPE, STEPS(x), const uint each) {
    PART_OF_IMAGES
    x += (long)x_offset + channel * x_channel;
    out += out_offset + (ulong)channel * inner;
    const REAL mean = means[means_offset + channel];
    REAL scale = 1 / sqrt(variances[variances_offset + channel] + eps);
#if WEIGHT
    scale *= LOAD(WEIGHT_DTYPE, weight, weight_offset + channel);
#endif
#if BIAS
    const REAL shift = LOAD(BIAS_DTYPE, bias, bias_offset + channel);
#else
    const REAL shift = 0;
#endif
    for (uint image = first; image < last; image++) {
        __global const STORAGE(DTYPE) *plane = x + image * x_image;
        __global STORAGE(DTYPE) *target = out + (ulong)image * channels * inner;
        FOR_VECTORS WRITE(target, (READ(plane, i) - mean) * scale + shift, i);
        FOR_TAIL STORE(DTYPE, (LOAD(DTYPE, plane, i) - mean) * scale + shift, target, i);
    }
}

// Per part and channel the sums of g * (x - mean) and of g, (parts, 2, channels).
__kernel void batch_sums(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x,
                         const ulong x_offset, __global const REAL *means, const ulong means_offset, __global REAL *partial,
                         SHAPE, STEPS(g), STEPS(x), const uint each) {
    GROUP_SCRATCH(REAL)
    PART_OF_IMAGES
    g += (long)g_offset + channel * g_channel;
    x += (long)x_offset + channel * x_channel;
    const REAL mean = means[means_offset + channel];
    V products = (V)(0), slopes = (V)(0);
    REAL product = 0, slope = 0;
    for (uint image = first; image < last; image++) {
        __global const STORAGE(DTYPE) *g_plane = g + image * g_image;
        __global const STORAGE(DTYPE) *x_plane = x + image * x_image;
        FOR_VECTORS {
            const V value = READ(g_plane, i);
            products += value * (READ(x_plane, i) - mean);
            slopes += value;
        }
        FOR_TAIL {
            const REAL value = LOAD(DTYPE, g_plane, i);
            product += value * (LOAD(DTYPE, x_plane, i) - mean);
            slope += value;
        }
    }
    product += LANES_SUM(products);
    GROUP_SUM(product)
    slope += LANES_SUM(slopes);
    GROUP_SUM(slope)
    if (GROUP_ME == 0) {
        partial[part * 2 * channels + channel] = product;
        partial[(part * 2 + 1) * channels + channel] = slope;
    }
}

// The gradients of weight and bias, kept in `sums` (2, channels) too.
__kernel void batch_join_sums(__global const REAL *partial, __global const REAL *variances, const ulong variances_offset,
                              __global STORAGE(GRADIENT_DTYPE) *dweight, const ulong dweight_offset,
                              __global STORAGE(GRADIENT_DTYPE) *dbias, const ulong dbias_offset, __global REAL *sums,
                              const REAL eps, const uint channels, const uint parts) {
    const uint channel = get_global_id(0);
    if (channel >= channels) return;
    REAL product = 0, slope = 0;
    for (uint part = 0; part < parts; part++) {
        product += partial[part * 2 * channels + channel];
        slope += partial[(part * 2 + 1) * channels + channel];
    }
    product *= 1 / sqrt(variances[variances_offset + channel] + eps);
    sums[channel] = product;
    sums[channels + channel] = slope;
    STORE(GRADIENT_DTYPE, product, dweight, dweight_offset + channel);
    STORE(GRADIENT_DTYPE, slope, dbias, dbias_offset + channel);
}

__kernel void batch_input_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x,
                               const ulong x_offset,
#if WEIGHT
                               __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
                               __global const REAL *means, const ulong means_offset, __global const REAL *variances,
                               const ulong variances_offset, __global STORAGE(DTYPE) *dx, const ulong dx_offset,
                               __global const REAL *sums, const REAL eps, SHAPE, STEPS(g), STEPS(x), const uint each) {
    PART_OF_IMAGES
    g += (long)g_offset + channel * g_channel;
    x += (long)x_offset + channel * x_channel;
    dx += dx_offset + (ulong)channel * inner;
    const REAL count = (REAL)images * inner, mean = means[means_offset + channel];
    const REAL deviation = 1 / sqrt(variances[variances_offset + channel] + eps);
    REAL scale = deviation;
#if WEIGHT
    scale *= LOAD(WEIGHT_DTYPE, weight, weight_offset + channel);
#endif
    const REAL product = sums[channel] / count * deviation, slope = sums[channels + channel] / count;
    for (uint image = first; image < last; image++) {
        __global const STORAGE(DTYPE) *g_plane = g + image * g_image, *x_plane = x + image * x_image;
        __global STORAGE(DTYPE) *target = dx + (ulong)image * channels * inner;
        FOR_VECTORS WRITE(target, (READ(g_plane, i) - slope - (READ(x_plane, i) - mean) * product) * scale, i);
        FOR_TAIL {
            const REAL value = (LOAD(DTYPE, g_plane, i) - slope - (LOAD(DTYPE, x_plane, i) - mean) * product) * scale;
            STORE(DTYPE, value, target, i);
        }
    }
}
