// Gradient of a convolution's input with few channels from its columns, the products of weights and the output's gradient: a
// work-item adds up, for all channels of a pixel, the elements of the taps that read the pixel, in a fixed order.
//
// The element of a tap is at channel * column_channel + tap * column_tap + image * column_image + row * across + column.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef CHANNELS
#define CHANNELS 3
#endif
#ifndef KERNEL_H
#define KERNEL_H 3
#endif
#ifndef KERNEL_W
#define KERNEL_W 3
#endif
#ifndef STRIDE_Y
#define STRIDE_Y 2
#endif
#ifndef STRIDE_X
#define STRIDE_X 2
#endif
#include "lib/dtypes.h"

typedef struct {
    long column_channel, column_tap, column_image, out_image, out_channel, out_down, out_across;
    uint pixels;
    int height, width, down, across, padding_y, padding_x, dilation_y, dilation_x;
} ColumnGeometry;

__kernel void conv_col2im(__global const float *columns, __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                          const ColumnGeometry geometry) {
    const uint item = get_global_id(0);
    if (item >= geometry.pixels) return;
    const int height = geometry.height, width = geometry.width;
    const int x = (int)(item % (uint)width), y = (int)(item / (uint)width % (uint)height);
    const uint image = item / ((uint)width * (uint)height);
    columns += image * geometry.column_image;
    float sums[CHANNELS];
#pragma unroll
    for (uint c = 0; c < CHANNELS; c++) sums[c] = 0;
    for (int r = 0; r < KERNEL_H; r++) {
        // The window whose tap reads this pixel, if any.
        const int from_y = y + geometry.padding_y - r * geometry.dilation_y, row = from_y / STRIDE_Y;
        if (from_y < 0 || from_y % STRIDE_Y != 0 || row >= geometry.down) continue;
#pragma unroll
        for (int s = 0; s < KERNEL_W; s++) {
            const int from_x = x + geometry.padding_x - s * geometry.dilation_x, column = from_x / STRIDE_X;
            if (from_x < 0 || from_x % STRIDE_X != 0 || column >= geometry.across) continue;
            __global const float *at = columns + (r * KERNEL_W + s) * geometry.column_tap + row * geometry.across + column;
#pragma unroll
            for (uint c = 0; c < CHANNELS; c++) sums[c] += at[c * geometry.column_channel];
        }
    }
    const long to = (long)out_offset + image * geometry.out_image + y * geometry.out_down + x * geometry.out_across;
#pragma unroll
    for (uint c = 0; c < CHANNELS; c++) STORE(OUT_DTYPE, sums[c], out, to + c * geometry.out_channel);
}
