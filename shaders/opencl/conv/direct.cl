// Convolution straight from memory, one work-item per element of the result: right where a group has few filters, as in
// depthwise convolution, so that there is no matrix product to speak of.

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
#include "lib/dtypes.h"

// x (images, groups * channels, height, width), weight (groups * filters, channels, kernel), result (images, groups * filters,
// down, across). The weight is contiguous.
__kernel void conv_direct(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *weight,
                          const ulong weight_offset,
#if BIAS
                          __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                          __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint images, const uint groups,
                          const uint channels, const uint filters, const int height, const int width, const int down,
                          const int across, const int kernel_h, const int kernel_w, const int stride_h, const int stride_w,
                          const int padding_h, const int padding_w, const int dilation_h, const int dilation_w,
                          const long x_image, const long x_channel, const long x_row, const long x_column) {
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
