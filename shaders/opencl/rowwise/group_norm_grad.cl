// Gradient of group norm, from its statistics: x and g are (images, channels, inner) without gaps but between images.
//
// plane_sums gives for each channel of each image the sums of g * (x - mean) * scale and of g; plane_input_grad puts those of a group
// together, weighted, as in rowwise/norm_grad.cl, and writes the gradient of x; channel_totals adds up the images for weight and bias.

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

#define SHAPE const uint images, const uint channels, const uint groups, const uint length, const long g_image, const long x_image
#define PLANE \
    const uint plane = get_group_id(0), image = plane / channels, channel = plane % channels; \
    const long g_at = (long)g_offset + image * g_image + (long)channel * length; \
    const long x_at = (long)x_offset + image * x_image + (long)channel * length; \
    const long g_step = 1, x_step = 1; \
    const uint each = channels / groups, statistic = image * groups + channel / each; \
    const REAL mean = means[means_offset + statistic], scale = scales[scales_offset + statistic];

__kernel void plane_sums(OPERAND(g), OPERAND(x), __global const REAL *means, const ulong means_offset,
                         __global const REAL *scales, const ulong scales_offset, __global REAL *sums, SHAPE) {
    GROUP_SCRATCH(REAL)
    PLANE
    DECLARE_ACCUMULATORS(products, 0)
    DECLARE_ACCUMULATORS(slopes, 0)
    FOR_VECTORS {
        const V slope = READ(g, g_at, i);
        products[k] += slope * (READ(x, x_at, i) - mean);
        slopes[k] += slope;
    }
    REAL product = SUM_ACCUMULATORS(products), slope = SUM_ACCUMULATORS(slopes);
    FOR_TAIL {
        const REAL value = LOAD(DTYPE, g, g_at + i);
        product += value * (LOAD(DTYPE, x, x_at + i) - mean);
        slope += value;
    }
    GROUP_SUM(product)
    GROUP_SUM(slope)
    if (LANE_ID == 0) {
        sums[plane] = product * scale;
        sums[images * channels + plane] = slope;
    }
}

__kernel void plane_input_grad(OPERAND(g), OPERAND(x),
#if WEIGHT
                               __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
                               __global const REAL *means, const ulong means_offset, __global const REAL *scales,
                               const ulong scales_offset, RESULT(dx), __global const REAL *sums, SHAPE) {
    PLANE
    const long dx_at = (long)dx_offset + (long)plane * length, dx_step = 1;
    REAL product = 0, slope = 0, factor = scale;
    for (uint c = channel / each * each; c < (channel / each + 1) * each; c++) {
        REAL w = 1;
#if WEIGHT
        w = LOAD(WEIGHT_DTYPE, weight, weight_offset + c);
#endif
        product += w * sums[image * channels + c];
        slope += w * sums[images * channels + image * channels + c];
    }
#if WEIGHT
    factor *= LOAD(WEIGHT_DTYPE, weight, weight_offset + channel);
#endif
    const REAL count = (REAL)each * length;
    product *= scale * scale / count;
    slope *= scale / count;
    FOR_VECTORS WRITE(dx, READ(g, g_at, i) * factor - slope - (READ(x, x_at, i) - mean) * product, dx_at, i);
    FOR_TAIL STORE(DTYPE, LOAD(DTYPE, g, g_at + i) * factor - slope - (LOAD(DTYPE, x, x_at + i) - mean) * product, dx, dx_at + i);
}

__kernel void channel_totals(__global const REAL *sums, __global STORAGE(GRADIENT_DTYPE) *dweight, const ulong dweight_offset,
                             __global STORAGE(GRADIENT_DTYPE) *dbias, const ulong dbias_offset, const uint images,
                             const uint channels) {
    const uint channel = get_global_id(0);
    if (channel >= channels) return;
    REAL product = 0, slope = 0;
    for (uint image = 0; image < images; image++) {
        product += sums[image * channels + channel];
        slope += sums[(images + image) * channels + channel];
    }
    STORE(GRADIENT_DTYPE, product, dweight, dweight_offset + channel);
    STORE(GRADIENT_DTYPE, slope, dbias, dbias_offset + channel);
}
