// Windows of images, unrolled tile by tile into the panels that matmul_panels.cl multiplies, in the type of the sums.
//
// pack_windows: columns are the pixels of the result, rows the taps (channel, r, s) of a window, for each image and group; panels
// hold NR pixels. A pixel's tap lies at pixel * stride + origin + tap * dilation; with TRANSPOSED (a gradient with respect to
// the input) at (pixel + origin + tap * dilation) / stride, where that is whole. Taps outside the image are zeros.
//
// pack_taps: columns are the taps, rows the pixels of all images, for each group; panels hold NR taps.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef NR
#define NR 32
#endif
#ifndef ROWS
#define ROWS 32
#endif
#ifndef TRANSPOSED
#define TRANSPOSED 0
#endif
#include "dtypes.h"

#define WINDOW \
    const uint channels, const uint groups, const int height, const int width, const uint pixels_across, const uint pixels, \
        const uint kernel_h, const uint kernel_w, const int stride_h, const int stride_w, const int origin_h, \
        const int origin_w, const int dilation_h, const int dilation_w, const long x_image, const long x_channel, \
        const long x_row, const long x_column

// A work-item packs the taps of one channel for one panel.
__kernel void pack_windows(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *packed,
                           const uint first_image, WINDOW) {
    const uint panels = (pixels + NR - 1) / NR;
    const uint channel = get_global_id(0), panel = get_global_id(1), batch = get_global_id(2);
    if (channel >= channels || panel >= panels) return;
    const uint taps = kernel_h * kernel_w;
    x += (long)x_offset + (long)(first_image + batch / groups) * x_image +
         (long)(batch % groups * channels + channel) * x_channel;
    packed += (((ulong)batch * panels + panel) * channels + channel) * taps * NR;
    const uint first = panel * NR, last = min(first + NR, pixels);
    for (uint r = 0; r < kernel_h; r++)
        for (uint s = 0; s < kernel_w; s++) {
            // Pixels of one row of the result at a time, as their taps lie in one row of the image.
            for (uint pixel = first; pixel < last;) {
                const uint py = pixel / pixels_across, px = pixel - py * pixels_across;
                const uint run = min(pixels_across - px, last - pixel);
                __global REAL *target = packed + (pixel - first);
#if TRANSPOSED
                const int ty = (int)py + origin_h + (int)r * dilation_h, y = ty / stride_h;
                const bool inside = ty >= 0 && ty % stride_h == 0 && y < height;
                for (uint i = 0; i < run; i++) target[i] = 0;
                if (inside) {
                    // The first pixel of the run whose tap is whole and not before the row; then every stride_w-th.
                    const int tx = (int)px + origin_w + (int)s * dilation_w;
                    const int skip = tx < 0 ? -tx : (stride_w - tx % stride_w) % stride_w;
                    int at = (tx + skip) / stride_w;
                    for (int i = skip; i < (int)run && at < width; i += stride_w, at++)
                        target[i] = LOAD(DTYPE, x, y * x_row + at * x_column);
                }
#else
                const int y = (int)py * stride_h + origin_h + (int)r * dilation_h;
                const int left = (int)px * stride_w + origin_w + (int)s * dilation_w;
                if (y < 0 || y >= height) {
                    for (uint i = 0; i < run; i++) target[i] = 0;
                } else {
                    // Pixels from `begin` to `end` have their tap inside the row.
                    const int begin = left < 0 ? (-left + stride_w - 1) / stride_w : 0;
                    const int end = width > left ? min((int)run, (width - left + stride_w - 1) / stride_w) : 0;
                    __global const STORAGE(DTYPE) *from = x + y * x_row + left * x_column;
                    const long step = stride_w * x_column;
                    for (int i = 0; i < min(begin, (int)run); i++) target[i] = 0;
                    if (step == 1)
                        for (int i = begin; i < end; i++) target[i] = LOAD(DTYPE, from, i);
                    else
                        for (int i = begin; i < end; i++) target[i] = LOAD(DTYPE, from, i * step);
                    for (int i = max(begin, end); i < (int)run; i++) target[i] = 0;
                }
#endif
                pixel += run;
            }
            for (uint i = last - first; i < NR; i++) packed[i] = 0;
            packed += NR;
        }
}

// A work-item packs ROWS pixels of one image for one panel.
__kernel void pack_taps(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *packed, const uint first_image,
                        const uint images, WINDOW) {
    const uint taps = kernel_h * kernel_w;
    const uint panels = (channels * taps + NR - 1) / NR;
    const uint chunks = (pixels + ROWS - 1) / ROWS;
    const uint image = get_global_id(0) / chunks, panel = get_global_id(1), group = get_global_id(2);
    if (image >= images || panel >= panels) return;
    const uint first = get_global_id(0) % chunks * ROWS, last = min(first + ROWS, pixels);
    x += (long)x_offset + (long)(first_image + image) * x_image;
    packed += (((ulong)group * panels + panel) * images + image) * pixels * NR + (ulong)first * NR;
    int down[NR], right[NR];
    long base[NR];
    for (uint i = 0; i < NR; i++) {
        const uint tap = panel * NR + i;
        const uint channel = tap / taps;
        const uint r = tap % taps / kernel_w, s = tap % kernel_w;
        // A tap past the end is pushed out of the image, so that it reads as zero.
        down[i] = channel < channels ? (int)r * dilation_h + origin_h : -0x40000000;
        right[i] = (int)s * dilation_w + origin_w;
        base[i] = (long)(group * channels + channel) * x_channel + down[i] * x_row + right[i] * x_column;
    }
    for (uint pixel = first; pixel < last; pixel++) {
        const int y = (int)(pixel / pixels_across) * stride_h, at = (int)(pixel % pixels_across) * stride_w;
        const long corner = y * x_row + at * x_column;
        for (uint i = 0; i < NR; i++) {
            const int ty = y + down[i], tx = at + right[i];
            const bool inside = ty >= 0 && ty < height && tx >= 0 && tx < width;
            packed[i] = inside ? LOAD(DTYPE, x, base[i] + corner) : (REAL)0;
        }
        packed += NR;
    }
}
