// Depthwise convolution on GPUs, and its gradients, at the speed of memory: a work-item has LINES results of a column, and
// keeps the pixels under their windows in registers, so that each is loaded once per tap across and not once per tap.
//
// Groups have one channel and `multiplier` filters. Images have the strides of `geometry`; weights and results are contiguous.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef KERNEL_H
#define KERNEL_H 3
#endif
#ifndef KERNEL_W
#define KERNEL_W 3
#endif
#ifndef STRIDE_Y
#define STRIDE_Y 1
#endif
#ifndef STRIDE_X
#define STRIDE_X 1
#endif
#ifndef DILATION_Y
#define DILATION_Y 1
#endif
#ifndef DILATION_X
#define DILATION_X 1
#endif
#ifndef PADDING_Y
#define PADDING_Y 1
#endif
#ifndef PADDING_X
#define PADDING_X 1
#endif
// Results of a work-item: lines of one column. In the gradient of the input a multiple of STRIDE_Y.
#ifndef LINES
#define LINES 4
#endif
#ifndef BIAS
#define BIAS 0
#endif
// 1: filters are flipped and the filters of a channel are summed, as in the gradient of the input.
#ifndef TRANSPOSED
#define TRANSPOSED 0
#endif
#ifndef GROUP
#define GROUP 64
#endif
#include "lib/dtypes.h"

#define TAPS (KERNEL_H * KERNEL_W)
// Lines of the image under the windows.
#define SPAN ((LINES - 1) * STRIDE_Y + (KERNEL_H - 1) * DILATION_Y + 1)
#define IS_WITHIN(at, length) ((uint)(at) < (uint)(length))

typedef struct {
    long x_image, x_channel, x_row, x_column;
    int height, width, down, across;
    uint channels, multiplier;
} DepthwiseGeometry;

// The pixels under LINES windows of a column, zeros outside the image.
FORCE_INLINE void load_pixels(__private REAL *pixels, __global const STORAGE(DTYPE) *x, const int top, const int left,
                              const DepthwiseGeometry geometry) {
#pragma unroll
    for (uint i = 0; i < SPAN; i++)
#pragma unroll
        for (uint s = 0; s < KERNEL_W; s++) {
            const int y = top + (int)i, at = left + (int)s * DILATION_X;
            const bool inside = IS_WITHIN(y, geometry.height) && IS_WITHIN(at, geometry.width);
            pixels[i * KERNEL_W + s] = inside ? LOAD(DTYPE, x, y * geometry.x_row + at * geometry.x_column) : 0;
        }
}

// `channels` is the number of channels of the result.
__kernel void conv_depthwise(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *weight,
                             const ulong weight_offset,
#if BIAS
                             __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                             __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const DepthwiseGeometry geometry) {
    const uint strip = get_global_id(0) / geometry.across, first = strip * LINES;
    const int column = get_global_id(0) - strip * geometry.across;
    const uint channel = get_global_id(1), image = get_global_id(2);
    if (first >= (uint)geometry.down) return;
    const int top = (int)first * STRIDE_Y - PADDING_Y, left = column * STRIDE_X - PADDING_X;
    const uint terms = TRANSPOSED ? geometry.multiplier : 1;
    const uint source = TRANSPOSED ? channel * geometry.multiplier : channel / geometry.multiplier;
    x += (long)x_offset + (long)image * geometry.x_image + (long)source * geometry.x_channel;
    weight += weight_offset + (ulong)channel * terms * TAPS;
    REAL sums[LINES];
#pragma unroll
    for (uint line = 0; line < LINES; line++) {
#if BIAS
        sums[line] = LOAD(DTYPE, bias, bias_offset + channel);
#else
        sums[line] = 0;
#endif
    }
    for (uint term = 0; term < terms; term++, x += geometry.x_channel, weight += TAPS) {
        REAL pixels[SPAN * KERNEL_W];
        load_pixels(pixels, x, top, left, geometry);
#pragma unroll
        for (uint r = 0; r < KERNEL_H; r++)
#pragma unroll
            for (uint s = 0; s < KERNEL_W; s++) {
                const uint tap = r * KERNEL_W + s;
                const REAL w = LOAD(DTYPE, weight, TRANSPOSED ? TAPS - 1 - tap : tap);
#pragma unroll
                for (uint line = 0; line < LINES; line++)
                    sums[line] += w * pixels[(line * STRIDE_Y + r * DILATION_Y) * KERNEL_W + s];
            }
    }
    out += out_offset + ((ulong)image * geometry.channels + channel) * geometry.down * geometry.across;
#pragma unroll
    for (uint line = 0; line < LINES; line++)
        if (first + line < (uint)geometry.down) STORE(OUT_DTYPE, sums[line], out, (first + line) * geometry.across + column);
}

// The gradient of the input where windows move by more than a pixel: x is the gradient of the result, of size height x width,
// `down` x `across` the size of the input, and `channels` its channels.
__kernel void conv_depthwise_spread(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                    __global const STORAGE(DTYPE) *weight, const ulong weight_offset,
                                    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                                    const DepthwiseGeometry geometry) {
    const uint strip = get_global_id(0) / geometry.across, first = strip * LINES;
    const int column = get_global_id(0) - strip * geometry.across;
    const uint channel = get_global_id(1), image = get_global_id(2);
    if (first >= (uint)geometry.down) return;
    x += (long)x_offset + (long)image * geometry.x_image + (long)channel * geometry.multiplier * geometry.x_channel;
    weight += weight_offset + (ulong)channel * geometry.multiplier * TAPS;
    REAL sums[LINES];
#pragma unroll
    for (uint line = 0; line < LINES; line++) sums[line] = 0;
    for (uint term = 0; term < geometry.multiplier; term++, x += geometry.x_channel, weight += TAPS)
#pragma unroll
        for (uint r = 0; r < KERNEL_H; r++)
#pragma unroll
            for (uint s = 0; s < KERNEL_W; s++) {
                const REAL w = LOAD(DTYPE, weight, r * KERNEL_W + s);
                const int across = column + PADDING_X - (int)s * DILATION_X, at = across / STRIDE_X;
                const bool hit = across >= 0 && at * STRIDE_X == across && at < geometry.width;
#pragma unroll
                for (uint line = 0; line < LINES; line++) {
                    // Which lines a tap hits is known to the compiler: `first` is a multiple of the stride.
                    const int offset = (int)line + PADDING_Y - (int)r * DILATION_Y;
                    if (((offset % STRIDE_Y) + STRIDE_Y) % STRIDE_Y != 0) continue;
                    const int y = ((int)first + offset) / STRIDE_Y;
                    if (hit && (int)first + offset >= 0 && y < geometry.height)
                        sums[line] += w * LOAD(DTYPE, x, y * geometry.x_row + at * geometry.x_column);
                }
            }
    out += out_offset + ((ulong)image * geometry.channels + channel) * geometry.down * geometry.across;
#pragma unroll
    for (uint line = 0; line < LINES; line++)
        if (first + line < (uint)geometry.down) STORE(OUT_DTYPE, sums[line], out, (first + line) * geometry.across + column);
}

// The gradient of the weight: a group adds up all taps of a filter over `images_each` images, in a fixed order. x is the
// input; the gradient of the result has the strides g_image to g_column; `channels` are its channels.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_depthwise_weight_grad(
    __global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x, const ulong x_offset,
    __global REAL *partial, const uint images, const uint images_each, const long g_image, const long g_channel,
    const long g_row, const long g_column, const DepthwiseGeometry geometry) {
    __local REAL shared_sums[GROUP];
    const uint me = get_local_id(0), channel = get_group_id(0), split = get_group_id(1);
    const uint begin = split * images_each, count = min(images_each, images - begin);
    const uint strips = (geometry.down + LINES - 1) / LINES, units = count * strips * geometry.across;
    x += (long)x_offset + (long)begin * geometry.x_image + (long)(channel / geometry.multiplier) * geometry.x_channel;
    g += (long)g_offset + (long)begin * g_image + (long)channel * g_channel;
    REAL sums[TAPS];
#pragma unroll
    for (uint tap = 0; tap < TAPS; tap++) sums[tap] = 0;
    for (uint unit = me; unit < units; unit += GROUP) {
        const uint place = unit / geometry.across, image = place / strips, first = (place - image * strips) * LINES;
        const int column = unit - place * geometry.across;
        REAL pixels[SPAN * KERNEL_W], grads[LINES];
        load_pixels(pixels, x + (long)image * geometry.x_image, (int)first * STRIDE_Y - PADDING_Y,
                    column * STRIDE_X - PADDING_X, geometry);
#pragma unroll
        for (uint line = 0; line < LINES; line++)
            grads[line] = first + line < (uint)geometry.down
                              ? LOAD(DTYPE, g, image * g_image + (first + line) * g_row + column * g_column)
                              : 0;
#pragma unroll
        for (uint r = 0; r < KERNEL_H; r++)
#pragma unroll
            for (uint s = 0; s < KERNEL_W; s++)
#pragma unroll
                for (uint line = 0; line < LINES; line++)
                    sums[r * KERNEL_W + s] += grads[line] * pixels[(line * STRIDE_Y + r * DILATION_Y) * KERNEL_W + s];
    }
    partial += ((ulong)split * geometry.channels + channel) * TAPS;
    for (uint tap = 0; tap < TAPS; tap++) {
        shared_sums[me] = sums[tap];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
            if (me < half_) shared_sums[me] += shared_sums[me + half_];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (me == 0) partial[tap] = shared_sums[0];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
