// Pack the operands of conv/wgmma.cl and conv/wgmma_weight_grad.cl channels-last: groups of matrices (channel, pixel) become
// (term, group, pixel, channel), with channels padded with zeros to `pitch`, a multiple of eight. Pixels are (image, y,
// x), and for weights (row, y, x). Term 0 is the element rounded to HALF_TYPE, each further term the rounded remainder.
// A group transposes TILE channels of TILE pixels in local memory; if a pixel is one vector, a work-item makes it.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef HALF_TYPE
#define HALF_TYPE bfloat16
#endif
#ifndef BF16_TERMS
#define BF16_TERMS 1
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"

#define TILE 64
#define ITEMS 256
#define WIDTH 8

#if BF16_TERMS == 1
static inline ushort round_float16(float value) {
    ushort bits;
    vstore_half_rte(value, 0, (half *)&bits);
    return bits;
}
#define round_bfloat16(value) bfloat16_of_float(value)
#define NEXT_TERM(value) CONCAT(round_, HALF_TYPE)(value)
#else
// Return the next term and subtract it from `rest`. A number that would round to infinity is truncated instead,
// infinity leaves no remainder, and NaN stays NaN.
static inline ushort split_off(float *rest) {
    const uint bits = as_uint(*rest), size = bits & 0x7fffffffu;
    const uint term = (bits + (size < 0x7f7f8000u ? 0x8000u : 0)) >> 16;
    *rest = size < 0x7f800000u ? *rest - as_float(term << 16) : 0.0f;
    return (ushort)(size > 0x7f800000u ? term | 0x40u : term);
}
#define NEXT_TERM(value) split_off(&(value))
#endif

// Store the terms of WIDTH channels to `to`; `rest` is overwritten.
static inline void store_terms(float *rest, __global ushort *to, const ulong term_size) {
#pragma unroll
    for (uint term = 0; term < BF16_TERMS; term++) {
        uint words[WIDTH / 2];
#pragma unroll
        for (uint e = 0; e < WIDTH; e++) {
            const uint bits = NEXT_TERM(rest[e]);
            words[e / 2] = e % 2 ? words[e / 2] | bits << 16 : bits;
        }
        *(__global uint4 *)(to + term * term_size) = (uint4)(words[0], words[1], words[2], words[3]);
    }
}

#define PIXEL_AT_INDEX(pixel) \
    ((pixel) / width / height * x_image + (pixel) / width % height * x_down + (pixel) % width * x_across)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_pack(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global ushort *packed, const ulong term_size,
    const uint channels, const uint pixels, const uint pitch, const uint height, const uint width, const long first,
    const long x_group, const long x_image, const long x_channel, const long x_down, const long x_across) {
    START_NEXT
    AWAIT_INPUTS
    __local float transposed[TILE * (TILE + 1)];
    const uint me = get_local_id(0), group = get_group_id(2);
    const uint first_pixel = get_group_id(0) * TILE, first_channel = get_group_id(1) * TILE;
    x += (long)x_offset + first + group * x_group;
    {
        const uint pixel = first_pixel + me % TILE;
        const long at = PIXEL_AT_INDEX(pixel);
#pragma unroll
        for (uint i = 0; i < TILE * TILE / ITEMS; i++) {
            const uint line = me / TILE + i * (ITEMS / TILE), channel = first_channel + line;
            transposed[line * (TILE + 1) + me % TILE] =
                pixel < pixels && channel < channels ? LOAD(DTYPE, x, at + channel * x_channel) : 0.0f;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint i = 0; i < TILE * TILE / WIDTH / ITEMS; i++) {
        const uint vector = me % (TILE / WIDTH), line = me / (TILE / WIDTH) + i * (ITEMS * WIDTH / TILE);
        const uint pixel = first_pixel + line, channel = first_channel + vector * WIDTH;
        if (pixel >= pixels || channel >= pitch) continue;
        float rest[WIDTH];
#pragma unroll
        for (uint e = 0; e < WIDTH; e++) rest[e] = transposed[(vector * WIDTH + e) * (TILE + 1) + line];
        store_terms(rest, packed + ((ulong)group * pixels + pixel) * pitch + channel, term_size);
    }
}

// For at most WIDTH channels: `pitch` is WIDTH.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_pack_pixels(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global ushort *packed, const ulong term_size,
    const uint channels, const uint pixels, const uint height, const uint width, const long first, const long x_group,
    const long x_image, const long x_channel, const long x_down, const long x_across) {
    START_NEXT
    AWAIT_INPUTS
    const uint pixel = get_global_id(0), group = get_group_id(2);
    if (pixel >= pixels) return;
    x += (long)x_offset + first + group * x_group + PIXEL_AT_INDEX(pixel);
    float rest[WIDTH];
#pragma unroll
    for (uint e = 0; e < WIDTH; e++) rest[e] = e < channels ? LOAD(DTYPE, x, e * x_channel) : 0.0f;
    store_terms(rest, packed + ((ulong)group * pixels + pixel) * WIDTH, term_size);
}

// For at most half of WIDTH channels of pairs of neighbouring pixels: a packed pixel has the channels of the pixels 2 * x - shift
// and 2 * x - shift + 1 of its line, or zeros outside the line, each padded to half of WIDTH. `pairs` is their number per line.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_pack_pairs(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global ushort *packed, const ulong term_size,
    const uint channels, const uint pixels, const uint height, const uint width, const uint pairs, const uint shift,
    const long x_image, const long x_channel, const long x_down, const long x_across) {
    START_NEXT
    AWAIT_INPUTS
    const uint pixel = get_global_id(0);
    if (pixel >= pixels) return;
    const int first = (int)(pixel % pairs * 2) - (int)shift;
    x += (long)x_offset + pixel / pairs / height * x_image + pixel / pairs % height * x_down + first * x_across;
    float rest[WIDTH];
#pragma unroll
    for (uint e = 0; e < WIDTH; e++) {
        const uint channel = e % (WIDTH / 2), right = e / (WIDTH / 2);
        const bool exists = channel < channels && (uint)(first + (int)right) < width;
        rest[e] = exists ? LOAD(DTYPE, x, channel * x_channel + right * x_across) : 0.0f;
    }
    store_terms(rest, packed + (ulong)pixel * WIDTH, term_size);
}
