// Convolution of small images, or for stride 1 the gradient of its input, in one launch: a group keeps an image with its border,
// and the weights of FILTERS filters, in local memory. A work-item computes EACH filters of a pixel at a time; PIXELS of them
// take neighbouring pixels. Weights are not packed first and sums are not split, which each take a launch: for images so small
// that a launch takes longer than the arithmetic.
//
// x (images, channels, height, width), result (images, filters, down, across). With TRANSPOSED x is the gradient of the output,
// the weight (channels, filters, kernel) is read with flipped taps, and the origin is that of the flipped window.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#define REAL float
#ifndef KERNEL_H
#define KERNEL_H 3
#endif
#ifndef KERNEL_W
#define KERNEL_W 3
#endif
#ifndef EACH
#define EACH 4
#endif
#ifndef FILTERS
#define FILTERS 16
#endif
#ifndef PIXELS
#define PIXELS 64
#endif
#ifndef GROUP
#define GROUP 256
#endif
#ifndef CHANNELS
#define CHANNELS 4
#endif
// Height and width of an image with its border.
#ifndef LINES
#define LINES 10
#endif
#ifndef LINE
#define LINE 10
#endif
#ifndef ACROSS
#define ACROSS 8
#endif
#ifndef TRANSPOSED
#define TRANSPOSED 0
#endif
#ifndef BIAS
#define BIAS 0
#endif
#include "lib/dtypes.h"

#define TAPS (KERNEL_H * KERNEL_W)
#define TAP(t) (TRANSPOSED ? TAPS - 1 - (t) : (t))
// Filters are a multiple of four; four more elements per tap spread the stores over the banks of local memory.
#define WEIGHT_LINE (FILTERS + 4)
#define TERMS (CHANNELS * TAPS)
#define PLANE (LINES * LINE)
// Elements that a work-item loads before it stores them to local memory, so that their loads are in flight at the same time.
#define AHEAD 8

typedef struct {
    long x_image, x_channel, x_down, x_across, weight_filter, weight_channel;
    uint filters;
    int height, width, pixels, origin_y, origin_x, stride_y, stride_x, dilation_y, dilation_x;
} LocalImageGeometry;

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_local_images(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *weight, const ulong weight_offset,
#if BIAS
    __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const LocalImageGeometry geometry) {
    // The image, and the weights as (channel, tap, filter).
    __local REAL image[CHANNELS * PLANE];
    __local REAL weights[TERMS * WEIGHT_LINE] __attribute__((aligned(16)));
    const uint filters = geometry.filters, me = get_local_id(0);
    const uint number = get_group_id(0), first = get_group_id(1) * FILTERS;
    const int pixels = geometry.pixels;
    x += (long)x_offset + (long)number * geometry.x_image;
    for (uint from = me; from < CHANNELS * PLANE; from += AHEAD * GROUP) {
        REAL ahead[AHEAD];
#pragma unroll
        for (uint j = 0; j < AHEAD; j++) {
            const uint i = from + j * GROUP, c = i / PLANE;
            const int y = (int)(i % PLANE / LINE) + geometry.origin_y, z = (int)(i % LINE) + geometry.origin_x;
            const bool inside = c < CHANNELS && y >= 0 && y < geometry.height && z >= 0 && z < geometry.width;
            ahead[j] = inside ? LOAD(DTYPE, x, c * geometry.x_channel + y * geometry.x_down + z * geometry.x_across) : 0;
        }
#pragma unroll
        for (uint j = 0; j < AHEAD; j++)
            if (from + j * GROUP < CHANNELS * PLANE) image[from + j * GROUP] = ahead[j];
    }
    weight += weight_offset;
    for (uint from = me; from < FILTERS * TERMS; from += AHEAD * GROUP) {
        REAL ahead[AHEAD];
#pragma unroll
        for (uint j = 0; j < AHEAD; j++) {
            const uint i = from + j * GROUP, term = i % TERMS, f = first + i / TERMS;
            ahead[j] = i < FILTERS * TERMS && f < filters
                           ? LOAD(DTYPE, weight, f * geometry.weight_filter + term / TAPS * geometry.weight_channel + TAP(term % TAPS))
                           : 0;
        }
#pragma unroll
        for (uint j = 0; j < AHEAD; j++) {
            const uint i = from + j * GROUP;
            if (i < FILTERS * TERMS) weights[i % TERMS * WEIGHT_LINE + i / TERMS] = ahead[j];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint f = me / PIXELS * EACH; f < FILTERS; f += GROUP / PIXELS * EACH)
        for (int pixel = (int)(me % PIXELS); pixel < pixels; pixel += PIXELS) {
            __local const REAL *window =
                image + pixel / ACROSS * geometry.stride_y * LINE + pixel % ACROSS * geometry.stride_x;
            __local const float4 *factors = (__local const float4 *)(weights + f);
            float4 sums[EACH / 4];
#pragma unroll
            for (uint e = 0; e < EACH / 4; e++) {
                sums[e] = (float4)(0);
#if BIAS
                const uint at = first + f + 4 * e;
                sums[e] = (float4)(LOAD(DTYPE, bias, bias_offset + min(at, filters - 1)),
                                   LOAD(DTYPE, bias, bias_offset + min(at + 1, filters - 1)),
                                   LOAD(DTYPE, bias, bias_offset + min(at + 2, filters - 1)),
                                   LOAD(DTYPE, bias, bias_offset + min(at + 3, filters - 1)));
#endif
            }
            for (uint c = 0; c < CHANNELS; c++, window += PLANE) {
#pragma unroll
                for (int r = 0; r < KERNEL_H; r++) {
#pragma unroll
                    for (int s = 0; s < KERNEL_W; s++, factors += WEIGHT_LINE / 4) {
                        const REAL value = window[r * geometry.dilation_y * LINE + s * geometry.dilation_x];
#pragma unroll
                        for (uint e = 0; e < EACH / 4; e++) sums[e] += value * factors[e];
                    }
                }
            }
            const ulong at = out_offset + ((ulong)number * filters + first + f) * pixels + pixel;
#pragma unroll
            for (uint e = 0; e < EACH / 4; e++) {
                const float each[4] = {sums[e].s0, sums[e].s1, sums[e].s2, sums[e].s3};
#pragma unroll
                for (uint i = 0; i < 4; i++)
                    if (first + f + 4 * e + i < filters) STORE(OUT_DTYPE, each[i], out, at + (ulong)(4 * e + i) * pixels);
            }
        }
}
