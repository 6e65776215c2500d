// Convolution and its gradients straight from memory, one work-item per element of the result: right where a group has few
// channels, as in depthwise convolution, so that there is no matrix product to speak of.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef BIAS
#define BIAS 0
#endif
#include "dtypes.h"

// x (images, groups * channels, height, width), weight (groups * filters, channels, kernel), result (images, groups * filters,
// down, across). Strides of x and of the gradient g; the weight is contiguous.
#define GEOMETRY \
    const uint images, const uint groups, const uint channels, const uint filters, const int height, const int width, \
        const int down, const int across, const int kernel_h, const int kernel_w, const int stride_h, const int stride_w, \
        const int padding_h, const int padding_w, const int dilation_h, const int dilation_w
#define STEPS(name) const long name##_image, const long name##_channel, const long name##_row, const long name##_column

__kernel void conv_direct(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *weight,
                          const ulong weight_offset,
#if BIAS
                          __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                          __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, GEOMETRY, STEPS(x)) {
    const uint pixel = get_global_id(0);
    if (pixel >= (uint)(down * across)) return;
    const uint filter = get_global_id(1), image = get_global_id(2);
    const uint group = filter / filters;
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    x += (long)x_offset + (long)image * x_image + (long)(group * channels) * x_channel;
    weight += weight_offset + (ulong)filter * channels * kernel_h * kernel_w;
#if BIAS
    REAL sum = LOAD(DTYPE, bias, bias_offset + filter);
#else
    REAL sum = 0;
#endif
    for (uint c = 0; c < channels; c++)
        for (int r = 0; r < kernel_h; r++)
            for (int s = 0; s < kernel_w; s++) {
                const int ty = y + r * dilation_h, tx = at + s * dilation_w;
                if (ty >= 0 && ty < height && tx >= 0 && tx < width)
                    sum += LOAD(DTYPE, x, c * x_channel + ty * x_row + tx * x_column) *
                           LOAD(DTYPE, weight, (c * kernel_h + r) * kernel_w + s);
            }
    STORE(OUT_DTYPE, sum, out, out_offset + ((ulong)image * groups * filters + filter) * down * across + pixel);
}

__kernel void conv_direct_input_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                     __global const STORAGE(DTYPE) *weight, const ulong weight_offset,
                                     __global STORAGE(OUT_DTYPE) *dx, const ulong dx_offset, GEOMETRY, STEPS(g)) {
    const uint pixel = get_global_id(0);
    if (pixel >= (uint)(height * width)) return;
    const uint plane = get_global_id(1), image = get_global_id(2);
    const uint group = plane / channels, channel = plane % channels;
    const int y = (int)(pixel / width) + padding_h, at = (int)(pixel % width) + padding_w;
    g += (long)g_offset + (long)image * g_image + (long)(group * filters) * g_channel;
    weight += weight_offset + ((ulong)group * filters * channels + channel) * kernel_h * kernel_w;
    REAL sum = 0;
    for (uint f = 0; f < filters; f++)
        for (int r = 0; r < kernel_h; r++)
            for (int s = 0; s < kernel_w; s++) {
                const int ty = y - r * dilation_h, tx = at - s * dilation_w;
                if (ty >= 0 && tx >= 0 && ty % stride_h == 0 && tx % stride_w == 0 && ty / stride_h < down &&
                    tx / stride_w < across)
                    sum += LOAD(DTYPE, g, f * g_channel + ty / stride_h * g_row + tx / stride_w * g_column) *
                           LOAD(DTYPE, weight, ((ulong)f * channels * kernel_h + r) * kernel_w + s);
            }
    STORE(OUT_DTYPE, sum, dx, dx_offset + ((ulong)image * groups * channels + plane) * height * width + pixel);
}

__kernel void conv_direct_weight_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                      __global const STORAGE(DTYPE) *x, const ulong x_offset,
                                      __global STORAGE(OUT_DTYPE) *dweight, const ulong dweight_offset, GEOMETRY, STEPS(g),
                                      STEPS(x)) {
    const uint item = get_global_id(0);
    const uint taps = kernel_h * kernel_w;
    if (item >= groups * filters * channels * taps) return;
    const int s = item % kernel_w, r = item / kernel_w % kernel_h;
    const uint channel = item / taps % channels, filter = item / taps / channels;
    g += (long)g_offset + (long)filter * g_channel;
    x += (long)x_offset + (long)(filter / filters * channels + channel) * x_channel;
    REAL sum = 0;
    for (uint image = 0; image < images; image++)
        for (int py = 0; py < down; py++) {
            const int y = py * stride_h - padding_h + r * dilation_h;
            if (y < 0 || y >= height) continue;
            REAL row = 0;
            for (int px = 0; px < across; px++) {
                const int at = px * stride_w - padding_w + s * dilation_w;
                if (at >= 0 && at < width)
                    row += LOAD(DTYPE, g, image * g_image + py * g_row + px * g_column) *
                           LOAD(DTYPE, x, image * x_image + y * x_row + at * x_column);
            }
            sum += row;
        }
    STORE(OUT_DTYPE, sum, dweight, dweight_offset + item);
}
