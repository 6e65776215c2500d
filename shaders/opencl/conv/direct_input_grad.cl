// Gradient of a convolution's input, one work-item per element of it: for GPUs whose local memory is not on the chip.
//
// g (images, groups * filters, down, across), weight (groups * filters, channels, kernel), result (images,
// groups * channels, height, width). `geometry` describes the convolution, whose x is the result here. The weight is
// contiguous.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#include "lib/dtypes.h"
#include "conv/geometry.h"

__kernel void conv_direct_input_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                     __global const STORAGE(DTYPE) *weight, const ulong weight_offset,
                                     __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const long g_image,
                                     const long g_filter, const long g_down, const long g_across, const uint channels,
                                     const ConvGeometry geometry) {
    const uint filters = geometry.m;
    const int height = geometry.height, width = geometry.width;
    const int down = geometry.column_height, across = geometry.column_width;
    const int kernel_h = geometry.term_height, kernel_w = geometry.term_width;
    const int dilation_h = geometry.term_step_y, dilation_w = geometry.term_step_x;
    const int stride_h = geometry.column_step_y, stride_w = geometry.column_step_x;
    const uint pixel = get_global_id(0);
    if (pixel >= (uint)(height * width)) return;
    const uint channel = get_global_id(1) % channels, group = get_global_id(1) / channels, image = get_global_id(2);
    const int row = (int)(pixel / width), column = (int)(pixel % width);
    const int y = row - geometry.origin_y, x = column - geometry.origin_x;
    g += (long)g_offset + (long)image * g_image + (long)group * filters * g_filter;
    weight += weight_offset + ((ulong)group * filters * channels + channel) * kernel_h * kernel_w;
    const ulong filter_size = (ulong)channels * kernel_h * kernel_w;
    REAL sum = 0;
    for (int r = 0; r < kernel_h; r++) {
        // The window whose tap r reads this row, if any.
        const int from_y = y - r * dilation_h, window_y = from_y / stride_h;
        if (from_y < 0 || from_y % stride_h != 0 || window_y >= down) continue;
        for (int s = 0; s < kernel_w; s++) {
            const int from_x = x - s * dilation_w, window_x = from_x / stride_w;
            if (from_x < 0 || from_x % stride_w != 0 || window_x >= across) continue;
            for (uint f = 0; f < filters; f++)
                sum += LOAD(DTYPE, g, f * g_filter + window_y * g_down + window_x * g_across) *
                       LOAD(DTYPE, weight, f * filter_size + (ulong)(r * kernel_w + s));
        }
    }
    const long at = (long)image * geometry.x_column + (long)group * geometry.x_group + (long)channel * geometry.x_term +
                    (long)row * geometry.x_down + (long)column * geometry.x_across;
    STORE(OUT_DTYPE, sum, out, (long)out_offset + at);
}
