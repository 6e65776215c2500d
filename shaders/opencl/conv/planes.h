// Images as planes (see conv/cpu_planes.cl): each channel as tops * lefts planes of `rows` rows of `pitch` pixels. Pixel (y, x) of
// plane (i, j) is the image's pixel (y * stride_h + top i, x * stride_w + left j), or 0 outside of it. Planes lie `plane`
// pixels apart; those left over are zeros.

#ifndef POLYHAL_PLANES
#define POLYHAL_PLANES

#include "lib/vectors.h"

// `layout`: what follows, and then the tops and the lefts.
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

// Vectors, and a few neighbours, at any address, without vload, which may be a call (QUIRK_OPERATORS_FOR_BUILTINS).
#define FEW 4
typedef struct __attribute__((packed)) {
    VEC(REAL) lanes;
} Many;
typedef struct __attribute__((packed)) {
    CONCAT(REAL, FEW) lanes;
} Few;
#define MANY(p) (((__global Many *)(p))->lanes)
#define SHIFTED(p) (((__global const Many *)(p))->lanes)

// Pixels from one channel to the next.
inline long channel_length(__global const int *layout) { return (long)LAYOUT_TOPS * LAYOUT_LEFTS * LAYOUT_PLANE; }

FORCE_INLINE void clear(__global REAL *to, int i, const int end) {
    if (end - i >= WIDTH) {
        for (; i + WIDTH <= end; i += WIDTH) MANY(to + i) = (VEC(REAL))(0);
        if (i < end) MANY(to + end - WIDTH) = (VEC(REAL))(0);
    } else
        for (; i < end; i++) to[i] = 0;
}

// Neighbours in memory, from `i` to `end`. What is left after whole vectors is copied with some before it once more.
FORCE_INLINE void copy(__global REAL *to, __global const STORAGE(DTYPE) *from, int i, const int end) {
    if (end - i >= WIDTH) {
        for (; i + WIDTH <= end; i += WIDTH) MANY(to + i) = LOADV(DTYPE, from + i);
        if (i < end) MANY(to + end - WIDTH) = LOADV(DTYPE, from + end - WIDTH);
        return;
    }
    if (sizeof(*from) == sizeof(*to))
        for (; i + FEW <= end; i += FEW) ((__global Few *)(to + i))->lanes = ((__global const Few *)(from + i))->lanes;
    for (; i < end; i++) to[i] = LOAD(DTYPE, from, i);
}

// Rows from `first_row` to `last_row` of plane `phase` of each of the `channels` of an image. What is 0 in every image is left
// alone unless it is the `first_time` that one is laid out there.
FORCE_INLINE void lay_out(__global const STORAGE(DTYPE) *x, const uint channels, const long x_channel, const long x_row,
                     const long x_column, __global REAL *planes, __global const int *layout, const uint phase,
                     const int first_row, const int last_row, const bool first_time) {
    const int pitch = LAYOUT_PITCH, stride_h = LAYOUT_STRIDE_H, stride_w = LAYOUT_STRIDE_W;
    const int top = LAYOUT_TOP(phase / LAYOUT_LEFTS), left = LAYOUT_LEFT(phase % LAYOUT_LEFTS);
    const int limit = last_row == LAYOUT_ROWS ? LAYOUT_PLANE : last_row * pitch;
    // Rows from `upper` to `lower`, and in them pixels from `begin` to `end`, lie inside the image.
    const int above = top < 0 ? (-top + stride_h - 1) / stride_h : 0;
    const int below = LAYOUT_HEIGHT > top ? (LAYOUT_HEIGHT - top + stride_h - 1) / stride_h : 0;
    const int upper = clamp(above, first_row, last_row), lower = clamp(below, upper, last_row);
    const int begin = left < 0 ? min((-left + stride_w - 1) / stride_w, pitch) : 0;
    const int end = LAYOUT_WIDTH > left ? clamp((LAYOUT_WIDTH - left + stride_w - 1) / stride_w, begin, pitch) : begin;
    const long step = stride_w * x_column, down = stride_h * x_row;
    // Rows that follow each other in memory as they do in the plane are copied as one, and then cleared at their ends.
    const bool joined = step == 1 && down == pitch && end > begin && upper < lower;
    const long next = channel_length(layout);
    x += top * x_row + left * x_column;
    planes += phase * LAYOUT_PLANE;
    for (uint channel = 0; channel < channels; channel++, x += x_channel, planes += next) {
        if (first_time) clear(planes, first_row * pitch, limit);
        if (joined) {
            copy(planes, x, upper * pitch + begin, (lower - 1) * pitch + end);
            for (int i = 0; i < begin; i++)
                for (int at = upper * pitch + i; at < lower * pitch; at += pitch) planes[at] = 0;
            for (int i = end; i < pitch; i++)
                for (int at = upper * pitch + i; at < lower * pitch; at += pitch) planes[at] = 0;
            continue;
        }
        for (int y = upper; y < lower; y++) {
            __global const STORAGE(DTYPE) *source = x + y * down;
            __global REAL *row = planes + y * pitch;
            if (step == 1) {
                copy(row, source, begin, end);
                continue;
            }
            int i = begin;
            // Every second pixel of two vectors; the last pixel may have no neighbour.
            for (; step == 2 && i + WIDTH < end; i += WIDTH) {
                const VEC(REAL) low = LOADV(DTYPE, source + 2 * i), high = LOADV(DTYPE, source + 2 * i + WIDTH);
                MANY(row + i) = (VEC(REAL))(low.even, high.even);
            }
            for (; i < end; i++) row[i] = LOAD(DTYPE, source, i * step);
        }
    }
}

// The channels of `images` one after the other.
FORCE_INLINE void lay_out_images(__global const STORAGE(DTYPE) *x, const uint images, const uint channels, const long x_image,
                            const long x_channel, const long x_row, const long x_column, __global REAL *planes,
                            __global const int *layout, const bool first_time) {
    const uint kinds = LAYOUT_TOPS * LAYOUT_LEFTS;
    for (uint i = 0; i < images; i++, x += x_image, planes += channels * channel_length(layout))
        for (uint kind = 0; kind < kinds; kind++)
            lay_out(x, channels, x_channel, x_row, x_column, planes, layout, kind, 0, LAYOUT_ROWS, first_time);
}

#endif
