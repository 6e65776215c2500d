// Batch norm of x (images, channels, inner) with contiguous `inner`, and its gradient. One block per channel reduces the
// statistics, the variance around the mean in a second pass; other launches apply them with a thread per element.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float32
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
#ifndef GROUP
#define GROUP 512
#endif
#define BLOCK GROUP
#define VECTORS 0
#define WIDTH 1
#include "lib/rows.cuh"

#define SHAPE const uint32 images, const uint32 channels, const uint32 inner
#define STEPS(name) const int64 name##_image, const int64 name##_channel

// Calls f(image, i) for each element of a channel that belongs to this thread.
template <typename F> inline void for_channel(uint32 images, uint32 inner, F f) {
    const uint64 count = (uint64)images * inner;
#pragma unroll 4
    for (uint64 k = threadIdx.x; k < count; k += BLOCK) f((int64)(k / inner), (uint32)(k % inner));
}

KERNEL batch_statistics(const DTYPE *x, real *means, real *variances, SHAPE, STEPS(x)) {
    const uint32 channel = blockIdx.x;
    x += channel * x_channel;
    const real count = (real)images * inner;
    real mean = 0, variance = 0;
    for_channel(images, inner, [&](int64 image, uint32 i) { mean += (real)widen(x[image * x_image + i]); });
    mean = group_sum(mean) / count;
    for_channel(images, inner, [&](int64 image, uint32 i) {
        const real centred = (real)widen(x[image * x_image + i]) - mean;
        variance += centred * centred;
    });
    variance = group_sum(variance) / count;
    if (threadIdx.x != 0) return;
    means[channel] = mean;
    variances[channel] = variance;
}

// Locates this thread's element of a contiguous result.
#define LOCATE \
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x; \
    if (item >= (uint64)images * channels * inner) return; \
    const uint32 i = item % inner, channel = item / inner % channels; \
    const int64 image = item / inner / channels;

KERNEL batch_apply(const DTYPE *x,
#if WEIGHT
                   const WEIGHT_DTYPE *weight,
#endif
#if BIAS
                   const BIAS_DTYPE *bias,
#endif
                   DTYPE *out, const real *means, const real *variances, const real eps, SHAPE, STEPS(x)) {
    LOCATE
    real scale = 1 / sqrt(variances[channel] + eps), shift = 0;
#if WEIGHT
    scale *= (real)widen(weight[channel]);
#endif
#if BIAS
    shift = (real)widen(bias[channel]);
#endif
    const real value = (real)widen(x[image * x_image + channel * x_channel + i]);
    out[item] = narrow<DTYPE>((value - means[channel]) * scale + shift);
}

// Sums of g * (x - mean) * scale and of g per channel: the gradients of weight and bias, also stored in `sums`.
KERNEL batch_sums(const DTYPE *g, const DTYPE *x, const real *means, const real *variances, GRADIENT_DTYPE *dweight,
                  GRADIENT_DTYPE *dbias, real *sums, const real eps, SHAPE, STEPS(g), STEPS(x)) {
    const uint32 channel = blockIdx.x;
    g += channel * g_channel;
    x += channel * x_channel;
    const real mean = means[channel];
    real product_sum = 0, grad_sum = 0;
    for_channel(images, inner, [&](int64 image, uint32 i) {
        const real value = (real)widen(g[image * g_image + i]);
        product_sum += value * ((real)widen(x[image * x_image + i]) - mean);
        grad_sum += value;
    });
    product_sum = group_sum(product_sum) / sqrt(variances[channel] + eps);
    grad_sum = group_sum(grad_sum);
    if (threadIdx.x != 0) return;
    sums[channel] = product_sum;
    sums[channels + channel] = grad_sum;
    dweight[channel] = narrow<GRADIENT_DTYPE>((Register<GRADIENT_DTYPE>)product_sum);
    dbias[channel] = narrow<GRADIENT_DTYPE>((Register<GRADIENT_DTYPE>)grad_sum);
}

KERNEL batch_input_grad(const DTYPE *g, const DTYPE *x,
#if WEIGHT
                        const WEIGHT_DTYPE *weight,
#endif
                        const real *means, const real *variances, DTYPE *dx, const real *sums, const real eps, SHAPE,
                        STEPS(g), STEPS(x)) {
    LOCATE
    const real count = (real)images * inner, inverse_deviation = 1 / sqrt(variances[channel] + eps);
    real scale = inverse_deviation;
#if WEIGHT
    scale *= (real)widen(weight[channel]);
#endif
    const real product_sum = sums[channel] / count * inverse_deviation, grad_sum = sums[channels + channel] / count;
    const real value = (real)widen(x[image * x_image + channel * x_channel + i]) - means[channel];
    dx[item] =
        narrow<DTYPE>(((real)widen(g[image * g_image + channel * g_channel + i]) - grad_sum - value * product_sum) * scale);
}
