// Gradient of group norm from its statistics. x and g are (images, channels, length), contiguous within an image.
//
// plane_sums computes the sums of g * (x - mean) * scale and of g for each channel of each image. plane_input_grad
// combines the sums of a group, weighted, as in rowwise/norm_grad.cl, and writes the gradient of x. channel_totals sums
// over images to the gradients of weight and bias.

#ifndef WEIGHT
#define WEIGHT 1
#endif
#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE DTYPE
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE WEIGHT_DTYPE
#endif
#include "lib/rows.h"

typedef struct {
    long g_image, x_image;
    uint images, channels, groups, length;
} GroupNormGeometry;
#define DECLARE_PLANE \
    const uint images = geometry.images, channels = geometry.channels, groups = geometry.groups, length = geometry.length; \
    const uint plane = get_group_id(0), image = plane / channels, channel = plane % channels; \
    const long g_at = (long)g_offset + image * geometry.g_image + (long)channel * length; \
    const long x_at = (long)x_offset + image * geometry.x_image + (long)channel * length; \
    const long g_step = 1, x_step = 1; \
    const uint each = channels / groups, statistic = image * groups + channel / each; \
    const REAL mean = means[means_offset + statistic], scale = scales[scales_offset + statistic];

__kernel void plane_sums(OPERAND(g), OPERAND(x), __global const REAL *means, const ulong means_offset,
                         __global const REAL *scales, const ulong scales_offset, __global REAL *sums,
                         const GroupNormGeometry geometry) {
    GROUP_SCRATCH(REAL)
    DECLARE_PLANE
    DECLARE_ACCUMULATORS(products, 0)
    DECLARE_ACCUMULATORS(grads, 0)
    FOR_VECTORS {
        const V grad = READ(g, g_at, i);
        products[k] += grad * (READ(x, x_at, i) - mean);
        grads[k] += grad;
    }
    REAL product = SUM_ACCUMULATORS(products), grad = SUM_ACCUMULATORS(grads);
    FOR_TAIL {
        const REAL value = LOAD(DTYPE, g, g_at + i);
        product += value * (LOAD(DTYPE, x, x_at + i) - mean);
        grad += value;
    }
    GROUP_SUM(product)
    GROUP_SUM(grad)
    if (LANE_ID == 0) {
        sums[plane] = product * scale;
        sums[images * channels + plane] = grad;
    }
}

__kernel void plane_input_grad(OPERAND(g), OPERAND(x),
#if WEIGHT
                               __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
                               __global const REAL *means, const ulong means_offset, __global const REAL *scales,
                               const ulong scales_offset, RESULT(dx), __global const REAL *sums,
                               const GroupNormGeometry geometry) {
    DECLARE_PLANE
    const long dx_at = (long)dx_offset + (long)plane * length, dx_step = 1;
    REAL product = 0, grad = 0, factor = scale;
    for (uint c = channel / each * each; c < (channel / each + 1) * each; c++) {
        REAL w = 1;
#if WEIGHT
        w = LOAD(WEIGHT_DTYPE, weight, weight_offset + c);
#endif
        product += w * sums[image * channels + c];
        grad += w * sums[images * channels + image * channels + c];
    }
#if WEIGHT
    factor *= LOAD(WEIGHT_DTYPE, weight, weight_offset + channel);
#endif
    const REAL count = (REAL)each * length;
    product *= scale * scale / count;
    grad *= scale / count;
    FOR_VECTORS WRITE(dx, READ(g, g_at, i) * factor - grad - (READ(x, x_at, i) - mean) * product, dx_at, i);
    FOR_TAIL {
        const REAL value = LOAD(DTYPE, g, g_at + i) * factor - grad - (LOAD(DTYPE, x, x_at + i) - mean) * product;
        STORE(DTYPE, value, dx, dx_at + i);
    }
}

__kernel void channel_totals(__global const REAL *sums, __global STORAGE(GRADIENT_DTYPE) *dweight,
                             const ulong dweight_offset, __global STORAGE(GRADIENT_DTYPE) *dbias, const ulong dbias_offset,
                             const uint images, const uint channels) {
    const uint channel = get_global_id(0);
    if (channel >= channels) return;
    REAL product = 0, grad = 0;
    for (uint image = 0; image < images; image++) {
        product += sums[image * channels + channel];
        grad += sums[(images + image) * channels + channel];
    }
    STORE(GRADIENT_DTYPE, product, dweight, dweight_offset + channel);
    STORE(GRADIENT_DTYPE, grad, dbias, dbias_offset + channel);
}
