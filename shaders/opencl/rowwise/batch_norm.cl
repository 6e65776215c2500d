// Batch norm of x (images, channels, inner), where inner is contiguous, and its gradient.
//
// A group of GROUP work-items computes the statistics of one channel over some images, the variance around their mean in a
// second pass. Several groups share a channel. Then batch_apply normalizes some images per group; each group first combines
// the statistics of all groups of its channel (Chan, Golub and LeVeque, 1979). With WHOLE_CHANNELS a channel is small enough for
// one group, which computes its statistics, or the sums of its gradient, in the same launch. On CPUs a group is one work-item, which takes
// CHANNELS_EACH neighbouring channels, so that it reads long contiguous runs of memory.
//
// With RELU the result is max(result, 0), and with ADDEND max(result + addend, 0). The gradient with RELU passes only elements
// whose result, recomputed from x, is positive.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
// Channels of a group. Divides their number; 1 unless GROUP is 1.
#ifndef CHANNELS_EACH
#define CHANNELS_EACH 1
#endif
// Work-items that read a plane in the reductions: the rest of the group reads further planes at the same time.
#ifndef PLANE_LANES
#define PLANE_LANES GROUP
#endif
#ifndef WHOLE_CHANNELS
#define WHOLE_CHANNELS 0
#endif
#if WHOLE_CHANNELS
#define SIZED __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define PARTIAL_RESULTS
#else
#define SIZED
#define PARTIAL_RESULTS __global const REAL *partial, const uint parts,
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "lib/vectors.h"
#include "lib/group_reduce.h"
#include "rowwise/batch_norm_parameters.h"

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
#define PLANE_LANE (LANE_ID % PLANE_LANES)
#define FOR_IMAGES for (uint image = first + LANE_ID / PLANE_LANES; image < last; image += GROUP / PLANE_LANES)
#define FOR_VECTORS for (uint i = PLANE_LANE * WIDTH; i < WHOLE; i += PLANE_LANES * WIDTH)
#define FOR_TAIL for (uint i = WHOLE + PLANE_LANE; i < inner; i += PLANE_LANES)
// Strides of images and channels.
#define STRIDES(name) long name##_image, name##_channel
typedef struct {
    STRIDES(x);
    uint images, channels, inner, images_each;
} PlaneGeometry;
typedef struct {
    STRIDES(g);
    STRIDES(x);
    uint images, channels, inner, images_each;
} PlaneGradGeometry;
#define DECLARE_STRIDES(name) const long name##_image = geometry.name##_image, name##_channel = geometry.name##_channel

// The channels and the images [first, last) of a group.
#define DECLARE_PLANES                                                                                  \
    const uint images = geometry.images, channels = geometry.channels, inner = geometry.inner;          \
    const uint channel = get_group_id(0) * CHANNELS_EACH, split = get_group_id(1);                      \
    const uint first = min(split * geometry.images_each, images), last = min(first + geometry.images_each, images)

// Means, factors and shifts of CHANNELS_EACH channels.
#define SCALES \
    REAL mean[CHANNELS_EACH], scale[CHANNELS_EACH], shift[CHANNELS_EACH]; \
    for (uint c = 0; c < CHANNELS_EACH; c++) { \
        mean[c] = means[means_offset + channel + c]; \
        scale[c] = DEVIATION(channel + c) * WEIGHT_OF(channel + c); \
        shift[c] = BIAS_OF(channel + c); \
    }
// The partial results of a channel are divided among the work-items of a group.
#define ELEMENTS(part) ((REAL)(min((part + 1) * images_part, images) - part * images_part) * inner)
#define FOR_PARTS for (uint part = LANE_ID; part < parts; part += GROUP)
#define NORMAL(x, c) (((x) - mean[c]) * scale[c] + shift[c])
#if ADDEND
#define ADDENDS \
    __global const STORAGE(DTYPE) *addend, const ulong addend_offset, const long addend_image, const long addend_channel,
#define PLUS_ADDEND_LANES(i) +READ(added, i)
#define PLUS_ADDEND(i) +LOAD(DTYPE, added, i)
#else
#define ADDENDS
#define PLUS_ADDEND_LANES(i)
#define PLUS_ADDEND(i)
#endif
// Relu keeps a NaN.
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

// Means and sums of squares around them of the channels in images [first, last).
#define CHANNEL_STATISTICS \
    const REAL number = (REAL)(last - first) * inner; \
    V sums[CHANNELS_EACH]; \
    REAL mean[CHANNELS_EACH], variance[CHANNELS_EACH]; \
    _Pragma("unroll") \
    for (uint c = 0; c < CHANNELS_EACH; c++) { \
        sums[c] = (V)(0); \
        mean[c] = variance[c] = 0; \
    } \
    FOR_IMAGES { \
    _Pragma("unroll") \
        for (uint c = 0; c < CHANNELS_EACH; c++) { \
            __global const STORAGE(DTYPE) *plane = x + image * x_image + c * x_channel; \
            FOR_VECTORS sums[c] += READ(plane, i); \
            FOR_TAIL mean[c] += LOAD(DTYPE, plane, i); \
        } \
    } \
    _Pragma("unroll") \
    for (uint c = 0; c < CHANNELS_EACH; c++) { \
        mean[c] += LANES_SUM(sums[c]); \
        GROUP_SUM(mean[c]) \
        mean[c] /= number; \
        sums[c] = (V)(0); \
    } \
    FOR_IMAGES { \
    _Pragma("unroll") \
        for (uint c = 0; c < CHANNELS_EACH; c++) { \
            __global const STORAGE(DTYPE) *plane = x + image * x_image + c * x_channel; \
            FOR_VECTORS { \
                const V centred = READ(plane, i) - mean[c]; \
                sums[c] += centred * centred; \
            } \
            FOR_TAIL { \
                const REAL centred = LOAD(DTYPE, plane, i) - mean[c]; \
                variance[c] += centred * centred; \
            } \
        } \
    } \
    _Pragma("unroll") \
    for (uint c = 0; c < CHANNELS_EACH; c++) { \
        variance[c] += LANES_SUM(sums[c]); \
        GROUP_SUM(variance[c]) \
    }

// Partial results: means, then sums of squares around them, (parts, channels) each.
__kernel NO_AUTOVEC void batch_statistics(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                          __global REAL *partial, const PlaneGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    GROUP_SCRATCH(REAL)
    DECLARE_PLANES;
    DECLARE_STRIDES(x);
    x += (long)x_offset + channel * x_channel;
    CHANNEL_STATISTICS
    for (uint c = 0; c < CHANNELS_EACH; c++)
        if (LANE_ID == 0) {
            partial[split * channels + channel + c] = mean[c];
            partial[(get_num_groups(1) + split) * channels + channel + c] = variance[c];
        }
}

// A partial result is that of `images_part` images.
__kernel NO_AUTOVEC SIZED void batch_apply(__global const STORAGE(DTYPE) *x, const ulong x_offset, ADDENDS WEIGHTS BIASES
                                           __global STORAGE(DTYPE) *out, const ulong out_offset, __global REAL *means,
                                           const ulong means_offset, __global REAL *variances, const ulong variances_offset,
                                           PARTIAL_RESULTS const REAL eps,
#if !WHOLE_CHANNELS
                                           const uint images_part,
#endif
                                           const PlaneGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    GROUP_SCRATCH(REAL)
    DECLARE_PLANES;
    DECLARE_STRIDES(x);
    x += (long)x_offset + channel * x_channel;
    out += out_offset + (ulong)channel * inner;
    const REAL count = (REAL)images * inner;
#if WHOLE_CHANNELS
    CHANNEL_STATISTICS
#else
    REAL mean[CHANNELS_EACH], variance[CHANNELS_EACH];
#endif
    REAL scale[CHANNELS_EACH], shift[CHANNELS_EACH];
    for (uint c = 0; c < CHANNELS_EACH; c++) {
#if WHOLE_CHANNELS
        variance[c] /= count;
#else
        __global const REAL *part_means = partial + channel + c, *part_squares = part_means + parts * channels;
        REAL distance = 0, squares = 0;
        FOR_PARTS distance += (part_means[part * channels] - part_means[0]) * ELEMENTS(part);
        GROUP_SUM(distance)
        mean[c] = part_means[0] + distance / count;
        FOR_PARTS {
            const REAL difference = part_means[part * channels] - mean[c];
            squares += part_squares[part * channels] + difference * difference * ELEMENTS(part);
        }
        GROUP_SUM(squares)
        variance[c] = squares / count;
#endif
        scale[c] = 1 / sqrt(variance[c] + eps) * WEIGHT_OF(channel + c);
        shift[c] = BIAS_OF(channel + c);
        if (split == 0 && LANE_ID == 0) {
            means[means_offset + channel + c] = mean[c];
            variances[variances_offset + channel + c] = variance[c];
        }
    }
    FOR_IMAGES {
#pragma unroll
        for (uint c = 0; c < CHANNELS_EACH; c++) {
            __global const STORAGE(DTYPE) *plane = x + image * x_image + c * x_channel;
            __global STORAGE(DTYPE) *target = out + ((ulong)image * channels + c) * inner;
#if ADDEND
            __global const STORAGE(DTYPE) *added =
                addend + ((long)addend_offset + image * addend_image + (channel + c) * addend_channel);
#endif
            FOR_VECTORS {
                const V value = NORMAL(READ(plane, i), c) PLUS_ADDEND_LANES(i);
                WRITE(target, RECTIFIED_LANES(value), i);
            }
            FOR_TAIL {
                const REAL value = NORMAL(LOAD(DTYPE, plane, i), c) PLUS_ADDEND(i);
                STORE(DTYPE, RECTIFIED(value), target, i);
            }
        }
    }
}

// The sums of g * (x - mean) and of g of the channels in images [first, last).
#define CHANNEL_SUMS \
    V products[CHANNELS_EACH], grads[CHANNELS_EACH]; \
    REAL product[CHANNELS_EACH], grad[CHANNELS_EACH]; \
    _Pragma("unroll") \
    for (uint c = 0; c < CHANNELS_EACH; c++) { \
        products[c] = grads[c] = (V)(0); \
        product[c] = grad[c] = 0; \
    } \
    FOR_IMAGES { \
    _Pragma("unroll") \
        for (uint c = 0; c < CHANNELS_EACH; c++) { \
            __global const STORAGE(DTYPE) *g_plane = g + image * g_image + c * g_channel; \
            __global const STORAGE(DTYPE) *x_plane = x + image * x_image + c * x_channel; \
            FOR_VECTORS { \
                const V at = READ(x_plane, i), passed = READ(g_plane, i), value = PASSED_LANES(passed, at, c); \
                products[c] += value * (at - mean[c]); \
                grads[c] += value; \
            } \
            FOR_TAIL { \
                const REAL at = LOAD(DTYPE, x_plane, i), passed = LOAD(DTYPE, g_plane, i), value = PASSED(passed, at, c); \
                product[c] += value * (at - mean[c]); \
                grad[c] += value; \
            } \
        } \
    } \
    _Pragma("unroll") \
    for (uint c = 0; c < CHANNELS_EACH; c++) { \
        product[c] += LANES_SUM(products[c]); \
        GROUP_SUM(product[c]) \
        grad[c] += LANES_SUM(grads[c]); \
        GROUP_SUM(grad[c]) \
    }

// Partial results: per part and channel the sums of g * (x - mean) and of g, (parts, 2, channels).
__kernel NO_AUTOVEC void batch_sums(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                    __global const STORAGE(DTYPE) *x, const ulong x_offset,
#if RELU
                                    WEIGHTS BIASES STATISTICS const REAL eps,
#else
                                    __global const REAL *means, const ulong means_offset,
#endif
                                    __global REAL *partial, const PlaneGradGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    GROUP_SCRATCH(REAL)
    DECLARE_PLANES;
    DECLARE_STRIDES(g);
    DECLARE_STRIDES(x);
    g += (long)g_offset + channel * g_channel;
    x += (long)x_offset + channel * x_channel;
#if RELU
    SCALES
#else
    REAL mean[CHANNELS_EACH];
    for (uint c = 0; c < CHANNELS_EACH; c++) mean[c] = means[means_offset + channel + c];
#endif
    CHANNEL_SUMS
    for (uint c = 0; c < CHANNELS_EACH; c++)
        if (LANE_ID == 0) {
            partial[split * 2 * channels + channel + c] = product[c];
            partial[(split * 2 + 1) * channels + channel + c] = grad[c];
        }
}

// Also makes the gradients of weight and bias.
__kernel NO_AUTOVEC SIZED void batch_input_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                                __global const STORAGE(DTYPE) *x, const ulong x_offset, WEIGHTS BIASES STATISTICS
                                                __global STORAGE(DTYPE) *dx, const ulong dx_offset,
                                                __global STORAGE(GRADIENT_DTYPE) *dweight, const ulong dweight_offset,
                                                __global STORAGE(GRADIENT_DTYPE) *dbias, const ulong dbias_offset,
                                                PARTIAL_RESULTS const REAL eps, const PlaneGradGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    GROUP_SCRATCH(REAL)
    DECLARE_PLANES;
    DECLARE_STRIDES(g);
    DECLARE_STRIDES(x);
    g += (long)g_offset + channel * g_channel;
    x += (long)x_offset + channel * x_channel;
    dx += dx_offset + (ulong)channel * inner;
    SCALES
    const REAL count = (REAL)images * inner;
#if WHOLE_CHANNELS
    CHANNEL_SUMS
#else
    REAL product[CHANNELS_EACH], grad[CHANNELS_EACH];
#endif
    for (uint c = 0; c < CHANNELS_EACH; c++) {
#if !WHOLE_CHANNELS
        product[c] = grad[c] = 0;
        FOR_PARTS {
            product[c] += partial[part * 2 * channels + channel + c];
            grad[c] += partial[(part * 2 + 1) * channels + channel + c];
        }
        GROUP_SUM(product[c])
        GROUP_SUM(grad[c])
#endif
        product[c] *= DEVIATION(channel + c);
        if (split == 0 && LANE_ID == 0) {
            STORE(GRADIENT_DTYPE, product[c], dweight, dweight_offset + channel + c);
            STORE(GRADIENT_DTYPE, grad[c], dbias, dbias_offset + channel + c);
        }
        product[c] *= DEVIATION(channel + c) / count;
        grad[c] /= count;
    }
    FOR_IMAGES {
#pragma unroll
        for (uint c = 0; c < CHANNELS_EACH; c++) {
            __global const STORAGE(DTYPE) *g_plane = g + image * g_image + c * g_channel;
            __global const STORAGE(DTYPE) *x_plane = x + image * x_image + c * x_channel;
            __global STORAGE(DTYPE) *target = dx + ((ulong)image * channels + c) * inner;
            FOR_VECTORS {
                const V at = READ(x_plane, i), passed = READ(g_plane, i), value = PASSED_LANES(passed, at, c);
                WRITE(target, (value - grad[c] - (at - mean[c]) * product[c]) * scale[c], i);
            }
            FOR_TAIL {
                const REAL at = LOAD(DTYPE, x_plane, i), passed = LOAD(DTYPE, g_plane, i), value = PASSED(passed, at, c);
                STORE(DTYPE, (value - grad[c] - (at - mean[c]) * product[c]) * scale[c], target, i);
            }
        }
    }
}
