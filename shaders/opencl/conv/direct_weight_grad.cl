// The gradient of a convolution's weight where a group has few filters, as in depthwise convolution: there is no matrix product to
// speak of, only one sum over all pixels per element. A group of work-items makes each, in a fixed order.

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
#include "conv/output_index.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_direct_weight_grad(
    __global const STORAGE(DTYPE) *slope, const ulong slope_offset, __global const STORAGE(DTYPE) *x, const ulong x_offset,
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint filters, const uint channels, const uint pixels,
    const uint lines, const uint across, const int slope_image, const int slope_row, const int slope_down,
    const int slope_across, const int x_image, const int x_channel, const int x_down, const int x_across,
    const int height, const int width, const uint kernel_h, const uint kernel_w, const int stride_y, const int stride_x,
    const int padding_y, const int padding_x, const int dilation_y, const int dilation_x) {
    __local REAL shares[GROUP];
    const uint me = get_local_id(0), item = get_group_id(0);
    const int tap_y = (int)(item / kernel_w % kernel_h) * dilation_y - padding_y;
    const int tap_x = (int)(item % kernel_w) * dilation_x - padding_x;
    const uint channel = item / (kernel_w * kernel_h) % channels, filter = item / (kernel_w * kernel_h * channels);
    const int last = LAST_PIXEL(height, width);
    slope += (long)slope_offset + (int)filter * slope_row;
    x += (long)x_offset + (int)(filter / filters * channels + channel) * x_channel;
    REAL sum = 0;
    for (uint pixel = me; pixel < pixels; pixel += GROUP) {
        const int image = (int)(pixel / (across * lines));
        const int line = (int)(pixel / across % lines), place = (int)(pixel % across);
        const int y = line * stride_y + tap_y, z = place * stride_x + tap_x;
        if (IS_INSIDE(PIXEL_AT(y, z), last))
            sum += LOAD(DTYPE, slope, image * slope_image + line * slope_down + place * slope_across) *
                   LOAD(DTYPE, x, image * x_image + y * x_down + z * x_across);
    }
    shares[me] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
        if (me < half_) shares[me] += shares[me + half_];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) STORE(OUT_DTYPE, shares[0], out, out_offset + item);
}
