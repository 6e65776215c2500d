// Batch norm of x (images, channels, inner), inner being contiguous. A group of GROUP work-items gathers the statistics of one
// channel in one part of the images, the variance around the part's mean in a second pass; parts are joined by another launch
// (Chan et al., 1979). Then groups of a further one apply them to some images each. Without PARTIAL the first launch gives the
// result. On CPUs a group is one work-item, which takes TOGETHER neighbouring channels, so that it reads long runs of memory.
//
// With RELU, the result is max(result, 0), and the gradient passes where the result, made once more from x, is positive.

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
#ifndef RELU
#define RELU 0
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
// Divides the number of channels; 1 unless GROUP is 1.
#ifndef TOGETHER
#define TOGETHER 1
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/group_reduce.h"

typedef VEC(REAL) V;
#include "lib/lane_reduce.h"

#if WIDTH == 1
#define READ(name, i) LOAD(DTYPE, name, i)
#define WRITE(name, value, i) STORE(DTYPE, value, name, i)
#else
#define READ(name, i) LOADV(DTYPE, (name) + (i))
#define WRITE(name, value, i) STOREV(DTYPE, value, (name) + (i))
#endif
#define WHOLE (inner / WIDTH * WIDTH)
#define FOR_VECTORS for (uint i = LANE_ID * WIDTH; i < WHOLE; i += GROUP * WIDTH)
#define FOR_TAIL for (uint i = WHOLE + LANE_ID; i < inner; i += GROUP)
#define SHAPE const uint images, const uint channels, const uint inner
#define STEPS(name) const long name##_image, const long name##_channel

#define PART_OF_IMAGES \
    const uint channel = get_group_id(0) * TOGETHER, part = get_group_id(1); \
    const uint first = min(part * each, images), last = min(first + each, images);

#if WEIGHT
#define WEIGHTS __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#define WEIGHT_OF(channel) LOAD(WEIGHT_DTYPE, weight, weight_offset + (channel))
#else
#define WEIGHTS
#define WEIGHT_OF(channel) 1
#endif
#if BIAS
#define BIASES __global const STORAGE(BIAS_DTYPE) *bias, const ulong bias_offset,
#define BIAS_OF(channel) LOAD(BIAS_DTYPE, bias, bias_offset + (channel))
#else
#define BIASES
#define BIAS_OF(channel) 0
#endif
#define STATISTICS \
    __global const REAL *means, const ulong means_offset, __global const REAL *variances, const ulong variances_offset,
#define DEVIATION(channel) (1 / sqrt(variances[variances_offset + (channel)] + eps))
// The means, factors and summands of TOGETHER channels.
#define SCALES \
    REAL mean[TOGETHER], scale[TOGETHER], shift[TOGETHER]; \
    for (uint c = 0; c < TOGETHER; c++) { \
        mean[c] = means[means_offset + channel + c]; \
        scale[c] = DEVIATION(channel + c) * WEIGHT_OF(channel + c); \
        shift[c] = BIAS_OF(channel + c); \
    }
#define NORMAL(x, c) (((x) - mean[c]) * scale[c] + shift[c])
// A NaN stays.
#if RELU
#define RECTIFIED_LANES(v) SELECT(v, (V)(0), (v) < 0)
#define RECTIFIED(v) ((v) < 0 ? 0 : (v))
#define PASSED_LANES(g, x, c) SELECT((V)(0), g, NORMAL(x, c) > 0)
#define PASSED(g, x, c) (NORMAL(x, c) > 0 ? (g) : 0)
#else
#define RECTIFIED_LANES(v) (v)
#define RECTIFIED(v) (v)
#define PASSED_LANES(g, x, c) (g)
#define PASSED(g, x, c) (g)
#endif

#if PARTIAL
// Means, then sums of squares around them, (parts, channels) each.
__kernel NO_AUTOVEC void batch_statistics(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *partial, SHAPE,
                               STEPS(x), const uint each) {
#else
__kernel NO_AUTOVEC void batch_statistics(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *means,
                               const ulong means_offset, __global REAL *variances, const ulong variances_offset, SHAPE,
                               STEPS(x), const uint each) {
#endif
    GROUP_SCRATCH(REAL)
    PART_OF_IMAGES
    x += (long)x_offset + channel * x_channel;
    const REAL count = (REAL)(last - first) * inner;
    V sums[TOGETHER];
    REAL mean[TOGETHER], variance[TOGETHER];
#pragma unroll
    for (uint c = 0; c < TOGETHER; c++) {
        sums[c] = (V)(0);
        mean[c] = variance[c] = 0;
    }
    for (uint image = first; image < last; image++) {
#pragma unroll
        for (uint c = 0; c < TOGETHER; c++) {
            __global const STORAGE(DTYPE) *plane = x + image * x_image + c * x_channel;
            FOR_VECTORS sums[c] += READ(plane, i);
            FOR_TAIL mean[c] += LOAD(DTYPE, plane, i);
        }
    }
#pragma unroll
    for (uint c = 0; c < TOGETHER; c++) {
        mean[c] += LANES_SUM(sums[c]);
        GROUP_SUM(mean[c])
        mean[c] /= count;
        sums[c] = (V)(0);
    }
    for (uint image = first; image < last; image++) {
#pragma unroll
        for (uint c = 0; c < TOGETHER; c++) {
            __global const STORAGE(DTYPE) *plane = x + image * x_image + c * x_channel;
            FOR_VECTORS {
                const V centred = READ(plane, i) - mean[c];
                sums[c] += centred * centred;
            }
            FOR_TAIL {
                const REAL centred = LOAD(DTYPE, plane, i) - mean[c];
                variance[c] += centred * centred;
            }
        }
    }
#pragma unroll
    for (uint c = 0; c < TOGETHER; c++) {
        variance[c] += LANES_SUM(sums[c]);
        GROUP_SUM(variance[c])
        if (LANE_ID == 0) {
#if PARTIAL
            partial[part * channels + channel + c] = mean[c];
            partial[(get_num_groups(1) + part) * channels + channel + c] = variance[c];
#else
            means[means_offset + channel + c] = mean[c];
            variances[variances_offset + channel + c] = variance[c] / count;
#endif
        }
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

__kernel NO_AUTOVEC void batch_apply(__global const STORAGE(DTYPE) *x, const ulong x_offset, WEIGHTS BIASES
                          __global STORAGE(DTYPE) *out, const ulong out_offset, STATISTICS
                          const REAL eps, SHAPE, STEPS(x), const uint each) {
    PART_OF_IMAGES
    x += (long)x_offset + channel * x_channel;
    out += out_offset + (ulong)channel * inner;
    SCALES
    for (uint image = first; image < last; image++) {
#pragma unroll
        for (uint c = 0; c < TOGETHER; c++) {
            __global const STORAGE(DTYPE) *plane = x + image * x_image + c * x_channel;
            __global STORAGE(DTYPE) *target = out + ((ulong)image * channels + c) * inner;
            FOR_VECTORS {
                const V value = NORMAL(READ(plane, i), c);
                WRITE(target, RECTIFIED_LANES(value), i);
            }
            FOR_TAIL {
                const REAL value = NORMAL(LOAD(DTYPE, plane, i), c);
                STORE(DTYPE, RECTIFIED(value), target, i);
            }
        }
    }
}

// Per part and channel the sums of g * (x - mean) and of g, (parts, 2, channels).
__kernel NO_AUTOVEC void batch_sums(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x,
                         const ulong x_offset,
#if RELU
                         WEIGHTS BIASES STATISTICS const REAL eps,
#else
                         __global const REAL *means, const ulong means_offset,
#endif
                         __global REAL *partial, SHAPE, STEPS(g), STEPS(x), const uint each) {
    GROUP_SCRATCH(REAL)
    PART_OF_IMAGES
    g += (long)g_offset + channel * g_channel;
    x += (long)x_offset + channel * x_channel;
#if RELU
    SCALES
#else
    REAL mean[TOGETHER];
    for (uint c = 0; c < TOGETHER; c++) mean[c] = means[means_offset + channel + c];
#endif
    V products[TOGETHER], slopes[TOGETHER];
    REAL product[TOGETHER], slope[TOGETHER];
#pragma unroll
    for (uint c = 0; c < TOGETHER; c++) {
        products[c] = slopes[c] = (V)(0);
        product[c] = slope[c] = 0;
    }
    for (uint image = first; image < last; image++) {
#pragma unroll
        for (uint c = 0; c < TOGETHER; c++) {
            __global const STORAGE(DTYPE) *g_plane = g + image * g_image + c * g_channel;
            __global const STORAGE(DTYPE) *x_plane = x + image * x_image + c * x_channel;
            FOR_VECTORS {
                const V at = READ(x_plane, i), passed = READ(g_plane, i), value = PASSED_LANES(passed, at, c);
                products[c] += value * (at - mean[c]);
                slopes[c] += value;
            }
            FOR_TAIL {
                const REAL at = LOAD(DTYPE, x_plane, i), passed = LOAD(DTYPE, g_plane, i), value = PASSED(passed, at, c);
                product[c] += value * (at - mean[c]);
                slope[c] += value;
            }
        }
    }
#pragma unroll
    for (uint c = 0; c < TOGETHER; c++) {
        product[c] += LANES_SUM(products[c]);
        GROUP_SUM(product[c])
        slope[c] += LANES_SUM(slopes[c]);
        GROUP_SUM(slope[c])
        if (LANE_ID == 0) {
            partial[part * 2 * channels + channel + c] = product[c];
            partial[(part * 2 + 1) * channels + channel + c] = slope[c];
        }
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

__kernel NO_AUTOVEC void batch_input_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                          __global const STORAGE(DTYPE) *x, const ulong x_offset, WEIGHTS BIASES STATISTICS
                                          __global STORAGE(DTYPE) *dx, const ulong dx_offset, __global const REAL *sums,
                                          const REAL eps, SHAPE, STEPS(g), STEPS(x), const uint each) {
    PART_OF_IMAGES
    g += (long)g_offset + channel * g_channel;
    x += (long)x_offset + channel * x_channel;
    dx += dx_offset + (ulong)channel * inner;
    SCALES
    const REAL count = (REAL)images * inner;
    REAL product[TOGETHER], slope[TOGETHER];
    for (uint c = 0; c < TOGETHER; c++) {
        product[c] = sums[channel + c] / count * DEVIATION(channel + c);
        slope[c] = sums[channels + channel + c] / count;
    }
    for (uint image = first; image < last; image++) {
#pragma unroll
        for (uint c = 0; c < TOGETHER; c++) {
            __global const STORAGE(DTYPE) *g_plane = g + image * g_image + c * g_channel;
            __global const STORAGE(DTYPE) *x_plane = x + image * x_image + c * x_channel;
            __global STORAGE(DTYPE) *target = dx + ((ulong)image * channels + c) * inner;
            FOR_VECTORS {
                const V at = READ(x_plane, i), passed = READ(g_plane, i), value = PASSED_LANES(passed, at, c);
                WRITE(target, (value - slope[c] - (at - mean[c]) * product[c]) * scale[c], i);
            }
            FOR_TAIL {
                const REAL at = LOAD(DTYPE, x_plane, i), passed = LOAD(DTYPE, g_plane, i), value = PASSED(passed, at, c);
                STORE(DTYPE, (value - slope[c] - (at - mean[c]) * product[c]) * scale[c], target, i);
            }
        }
    }
}
