// Packing images as tap planes, in which every tap of a convolution is a constant offset (see conv/cpu_planes.cl). Each
// channel becomes tops * lefts planes of `rows` rows of `pitch` pixels. Pixel (y, x) of plane (i, j) is the image's pixel
// (y * stride_h + top i, x * stride_w + left j), or 0 outside the image. The distance of planes is LAYOUT_PLANE pixels;
// the gap after the last row is zero.

#ifndef POLYHAL_CONV_TAP_PLANES
#define POLYHAL_CONV_TAP_PLANES

#include "lib/vectors.h"

// A `layout` table: these numbers, then the tops and the lefts.
#define LAYOUT_HEIGHT layout[0]
#define LAYOUT_WIDTH layout[1]
#define LAYOUT_ROWS layout[2]
#define LAYOUT_PITCH layout[3]
#define LAYOUT_PLANE layout[4]
#define LAYOUT_TOPS layout[5]
#define LAYOUT_LEFTS layout[6]
#define LAYOUT_STRIDE_H layout[7]
#define LAYOUT_STRIDE_W layout[8]
#define LAYOUT_TOP(i) layout[9 + (i)]
#define LAYOUT_LEFT(j) layout[9 + LAYOUT_TOPS + (j)]

// A vector, and four reals, at any address, without vload, which may be a call (QUIRK_OPERATORS_FOR_BUILTINS).
#define SHORT_WIDTH 4
typedef struct __attribute__((packed)) {
    VEC(REAL) lanes;
} UnalignedVector;
typedef struct __attribute__((packed)) {
    CONCAT(REAL, SHORT_WIDTH) lanes;
} UnalignedShort;
#define VECTOR_AT(p) (((__global UnalignedVector *)(p))->lanes)
#define CONST_VECTOR_AT(p) (((__global const UnalignedVector *)(p))->lanes)

// Pixels from one channel to the next.
static inline long channel_length(__global const int *layout) {
    return (long)LAYOUT_TOPS * LAYOUT_LEFTS * LAYOUT_PLANE;
}

FORCE_INLINE void clear_pixels(__global REAL *to, int i, const int end) {
    if (end - i >= WIDTH) {
        for (; i + WIDTH <= end; i += WIDTH) VECTOR_AT(to + i) = (VEC(REAL))(0);
        if (i < end) VECTOR_AT(to + end - WIDTH) = (VEC(REAL))(0);
    } else
        for (; i < end; i++) to[i] = 0;
}

// Copy contiguous pixels `i` to `end`. The remainder after whole vectors is copied as one more vector that overlaps the
// last one.
FORCE_INLINE void copy_pixels(__global REAL *to, __global const STORAGE(DTYPE) *from, int i, const int end) {
    if (end - i >= WIDTH) {
        for (; i + WIDTH <= end; i += WIDTH) VECTOR_AT(to + i) = LOADV(DTYPE, from + i);
        if (i < end) VECTOR_AT(to + end - WIDTH) = LOADV(DTYPE, from + end - WIDTH);
        return;
    }
    if (sizeof(*from) == sizeof(*to))
        for (; i + SHORT_WIDTH <= end; i += SHORT_WIDTH)
            ((__global UnalignedShort *)(to + i))->lanes = ((__global const UnalignedShort *)(from + i))->lanes;
    for (; i < end; i++) to[i] = LOAD(DTYPE, from, i);
}

// Pack rows `first_row` to `last_row` of plane `plane` of each of `channels` channels of an image. Pixels that are zero in
// every image are written only if `clear` is set, as it must be for the first image in this memory.
FORCE_INLINE void pack_plane(__global const STORAGE(DTYPE) *x, const uint channels, const long x_channel, const long x_row,
                             const long x_column, __global REAL *planes, __global const int *layout, const uint plane,
                             const int first_row, const int last_row, const bool clear) {
    const int pitch = LAYOUT_PITCH, stride_h = LAYOUT_STRIDE_H, stride_w = LAYOUT_STRIDE_W;
    const int top = LAYOUT_TOP(plane / LAYOUT_LEFTS), left = LAYOUT_LEFT(plane % LAYOUT_LEFTS);
    const int limit = last_row == LAYOUT_ROWS ? LAYOUT_PLANE : last_row * pitch;
    // Rows `upper` to `lower`, and in them pixels `begin` to `end`, are inside the image.
    const int above = top < 0 ? (-top + stride_h - 1) / stride_h : 0;
    const int below = LAYOUT_HEIGHT > top ? (LAYOUT_HEIGHT - top + stride_h - 1) / stride_h : 0;
    const int upper = clamp(above, first_row, last_row), lower = clamp(below, upper, last_row);
    const int begin = left < 0 ? min((-left + stride_w - 1) / stride_w, pitch) : 0;
    const int end = LAYOUT_WIDTH > left ? clamp((LAYOUT_WIDTH - left + stride_w - 1) / stride_w, begin, pitch) : begin;
    const long step = stride_w * x_column, down = stride_h * x_row;
    // Rows that are contiguous both in the image and in the plane are copied as one, and their ends cleared afterwards.
    const bool contiguous = step == 1 && down == pitch && end > begin && upper < lower;
    const long channel_step = channel_length(layout);
    x += top * x_row + left * x_column;
    planes += plane * LAYOUT_PLANE;
    for (uint channel = 0; channel < channels; channel++, x += x_channel, planes += channel_step) {
        if (clear) clear_pixels(planes, first_row * pitch, limit);
        if (contiguous) {
            copy_pixels(planes, x, upper * pitch + begin, (lower - 1) * pitch + end);
            for (int i = 0; i < begin; i++)
                for (int at = upper * pitch + i; at < lower * pitch; at += pitch) planes[at] = 0;
            for (int i = end; i < pitch; i++)
                for (int at = upper * pitch + i; at < lower * pitch; at += pitch) planes[at] = 0;
            continue;
        }
        for (int y = upper; y < lower; y++) {
            __global const STORAGE(DTYPE) *from = x + y * down;
            __global REAL *row = planes + y * pitch;
            if (step == 1) {
                copy_pixels(row, from, begin, end);
                continue;
            }
            int i = begin;
            // Every second pixel of two vectors. The last pixel may have no neighbour to read, so the last vector begins with
            // the neighbour of its first one, and some of its pixels are copied twice.
            for (; step == 2 && i + WIDTH < end; i += WIDTH) {
                const VEC(REAL) low = LOADV(DTYPE, from + 2 * i), high = LOADV(DTYPE, from + 2 * i + WIDTH);
                VECTOR_AT(row + i) = (VEC(REAL))(low.even, high.even);
            }
            if (i > begin) {
                __global const STORAGE(DTYPE) *rest = from + 2 * (end - WIDTH) - 1;
                const VEC(REAL) low = LOADV(DTYPE, rest), high = LOADV(DTYPE, rest + WIDTH);
                VECTOR_AT(row + end - WIDTH) = (VEC(REAL))(low.odd, high.odd);
                continue;
            }
            for (; i < end; i++) row[i] = LOAD(DTYPE, from, i * step);
        }
    }
}

// Pack all planes of `images` images of `channels` channels, one image after the other.
FORCE_INLINE void pack_images(__global const STORAGE(DTYPE) *x, const uint images, const uint channels, const long x_image,
                              const long x_channel, const long x_row, const long x_column, __global REAL *planes,
                              __global const int *layout, const bool clear) {
    const uint planes_each = LAYOUT_TOPS * LAYOUT_LEFTS;
    for (uint i = 0; i < images; i++, x += x_image, planes += channels * channel_length(layout))
        for (uint plane = 0; plane < planes_each; plane++)
            pack_plane(x, channels, x_channel, x_row, x_column, planes, layout, plane, 0, LAYOUT_ROWS, clear);
}

#endif
