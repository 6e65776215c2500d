// Direct convolution, one work-item per element of the result: for groups of few filters, as in depthwise convolution,
// which would fill only a fraction of a matrix product's tiles.
//
// x (images, groups * channels, height, width), weight (groups * filters, channels, kernel), result (images,
// groups * filters, down, across). The weight is contiguous.

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
#include "conv/geometry.h"

__kernel void conv_direct(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *weight,
                          const ulong weight_offset,
#if BIAS
                          __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                          __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint groups,
                          const uint channels, const ConvGeometry geometry) {
    const uint filters = geometry.m;
    const int height = geometry.height, width = geometry.width;
    const int down = geometry.column_height, across = geometry.column_width;
    const int kernel_h = geometry.term_height, kernel_w = geometry.term_width;
    const int dilation_h = geometry.term_step_y, dilation_w = geometry.term_step_x;
    const long x_channel = geometry.x_term, x_row = geometry.x_down, x_column = geometry.x_across;
    const uint pixel = get_global_id(0);
    if (pixel >= (uint)(down * across)) return;
    const uint filter = get_global_id(1), image = get_global_id(2);
    const uint group = filter / filters;
    const int y = (int)(pixel / across) * geometry.column_step_y + geometry.origin_y;
    const int at = (int)(pixel % across) * geometry.column_step_x + geometry.origin_x;
    x += (long)x_offset + (long)image * geometry.x_column + (long)group * geometry.x_group;
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
