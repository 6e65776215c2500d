// The weight gradient of a convolution for groups of few filters, as in depthwise convolution, which would fill only a
// fraction of a matrix product's tiles: a group of work-items adds up one element over all pixels, in a fixed order.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef GROUP
#define GROUP 64
#endif
#include "lib/dtypes.h"
#include "conv/geometry.h"

// Terms are pixels of the output's gradient g, columns (channel, tap).
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_direct_weight_grad(
    __global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x, const ulong x_offset,
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint channels, const ConvGeometry geometry) {
    __local REAL partial[GROUP];
    const uint filters = geometry.m, pixels = geometry.k, lines = geometry.term_height, across = geometry.term_width;
    const uint kernel_h = geometry.column_height, kernel_w = geometry.column_width;
    const int g_image = geometry.a_term0, g_down = geometry.a_term1, g_across = geometry.a_term2;
    const int g_filter = geometry.a_row, x_image = geometry.x_term, x_channel = geometry.x_column;
    const int x_down = geometry.x_down, x_across = geometry.x_across;
    const int stride_y = geometry.term_step_y, stride_x = geometry.term_step_x;
    const uint me = get_local_id(0), item = get_group_id(0);
    const int tap_y = (int)(item / kernel_w % kernel_h) * geometry.column_step_y + geometry.origin_y;
    const int tap_x = (int)(item % kernel_w) * geometry.column_step_x + geometry.origin_x;
    const uint channel = item / (kernel_w * kernel_h) % channels, filter = item / (kernel_w * kernel_h * channels);
    const int last = LAST_PIXEL(geometry.height, geometry.width);
    g += (long)g_offset + (int)filter * g_filter;
    x += (long)x_offset + (int)(filter / filters * channels + channel) * x_channel;
    REAL sum = 0;
#pragma unroll 4
    for (uint pixel = me; pixel < pixels; pixel += GROUP) {
        const int image = (int)(pixel / (across * lines));
        const int line = (int)(pixel / across % lines), column = (int)(pixel % across);
        const int y = line * stride_y + tap_y, z = column * stride_x + tap_x;
        if (IS_INSIDE(PIXEL_AT(y, z), last))
            sum += LOAD(DTYPE, g, image * g_image + line * g_down + column * g_across) *
                   LOAD(DTYPE, x, image * x_image + y * x_down + z * x_across);
    }
    partial[me] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
        if (me < half_) partial[me] += partial[me + half_];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) STORE(OUT_DTYPE, partial[0], out, out_offset + item);
}
