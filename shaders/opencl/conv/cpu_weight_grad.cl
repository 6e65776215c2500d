// The weight gradient of a convolution on a CPU, from tap planes (see conv/cpu_planes.cl). Each weight is a dot product of
// a plane of the output's gradient and an offset plane of the input, both of the same pitch:
//
//     out[filter][c][t] = sum over images and columns of grads[filter][column] * planes[c][offset[t] + column]
//
// The gradient's plane has zeros between its rows and up to `count`, a multiple of WIDTH. A register tile makes ROWS
// filters by COLUMNS pairs of channel and tap.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: ROWS * COLUMNS accumulators, COLUMNS of planes and one gradient; 31 of AVX-512's 32.
#ifndef ROWS
#define ROWS 4
#endif
#ifndef COLUMNS
#define COLUMNS 6
#endif
// 1: other launches pack both operands; 0: this kernel does.
#ifndef PREPACKED
#define PREPACKED 1
#endif
// 1: the gradients have the layout of planes already and are read in place.
#ifndef GRADS_IN_PLACE
#define GRADS_IN_PLACE 1
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "conv/tap_planes.h"

typedef VEC(REAL) V;

// One step of summing the lanes of two vectors at once: halves are folded, then neighbouring lanes are added.
#define FOLD_HALVES(a, b) ((V)((a).lo + (a).hi, (b).lo + (b).hi))
#define ADD_NEIGHBOURS(a, b) ((V)((a).even, (b).even) + (V)((a).odd, (b).odd))
#define TOTALS ((ROWS * COLUMNS + WIDTH - 1) / WIDTH * WIDTH)

// Strides count elements. A work-item takes `images_each` images at a time; `splits` of them share a sum.
typedef struct {
    long g_image, g_channel, x_image, x_channel;
#if !PREPACKED
    long g_row, g_column, x_row, x_column;
#else
    uint chunk, filters_each;
#endif
    uint taps, channels, filters, images, groups, count, images_each, splits;
} WeightGradGeometry;

// Add to the sums of filters `first_filter` to `last_filter`, over columns `begin` to `end` of some images of one group;
// or set them, if this is their `first_time`.
FORCE_INLINE void add_weights(__global const REAL *grads, __global const REAL *planes, __global REAL *sums,
                              __global const int *tap_offsets, const uint taps, const uint channels,
                              const long grads_image, const long grads_channel, const long planes_image,
                              const long planes_channel, const uint images, const uint first_filter,
                              const uint last_filter, const uint begin, const uint end, const bool first_time) {
    const uint columns = channels * taps;
    for (uint filter = first_filter; filter < last_filter; filter += ROWS) {
        const uint rows = min((uint)ROWS, last_filter - filter);
        __global const REAL *grad[ROWS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
            grad[r] = grads + (long)(filter + min(r, rows - 1)) * grads_channel;
        uint channel = 0, tap = 0;
        for (uint first = 0; first < columns; first += COLUMNS) {
            const uint count = min((uint)COLUMNS, columns - first);
            __global const REAL *plane[COLUMNS];
#pragma unroll
            for (uint i = 0; i < COLUMNS; i++) {
                plane[i] = planes + (long)channel * planes_channel + tap_offsets[tap];
                if (i + 1 < count && ++tap == taps) {
                    tap = 0;
                    channel++;
                }
            }
            if (++tap == taps) {
                tap = 0;
                channel++;
            }
            V acc[ROWS][COLUMNS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint i = 0; i < COLUMNS; i++) acc[r][i] = (V)(0);
            for (uint image = 0; image < images; image++) {
                for (uint at = begin; at < end; at += WIDTH) {
                    V p[COLUMNS];
#pragma unroll
                    for (uint i = 0; i < COLUMNS; i++) p[i] = CONST_VECTOR_AT(plane[i] + at);
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        const V g = CONST_VECTOR_AT(grad[r] + at);
#pragma unroll
                        for (uint i = 0; i < COLUMNS; i++) acc[r][i] += g * p[i];
                    }
                }
#pragma unroll
                for (uint r = 0; r < ROWS; r++) grad[r] += grads_image;
#pragma unroll
                for (uint i = 0; i < COLUMNS; i++) plane[i] += planes_image;
            }
#pragma unroll
            for (uint r = 0; r < ROWS; r++) grad[r] -= images * grads_image;
            // Sum the lanes of all accumulators at once, by halving pairs of vectors.
            V joined[TOTALS / 2];
#pragma unroll
            for (uint i = 0; i < TOTALS / 2; i++)
                joined[i] = 2 * i < ROWS * COLUMNS ? FOLD_HALVES(acc[2 * i / COLUMNS][2 * i % COLUMNS],
                                                                 acc[(2 * i + 1) / COLUMNS % ROWS][(2 * i + 1) % COLUMNS])
                                                   : (V)(0);
#pragma unroll
            for (uint pairs = TOTALS / 4; pairs >= TOTALS / WIDTH; pairs /= 2)
#pragma unroll
                for (uint i = 0; i < TOTALS / 4; i++)
                    if (i < pairs) joined[i] = ADD_NEIGHBOURS(joined[2 * i], joined[2 * i + 1]);
            V totals[TOTALS / WIDTH];
#pragma unroll
            for (uint i = 0; i < TOTALS / WIDTH; i++) totals[i] = joined[i];
            __private const REAL *total = (__private const REAL *)totals;
            for (uint r = 0; r < rows; r++) {
                __global REAL *to = sums + (ulong)(filter + r) * columns + first;
                for (uint i = 0; i < count; i++) to[i] = total[r * COLUMNS + i] + (first_time ? 0 : to[i]);
            }
        }
    }
}

#if PREPACKED
// A work-item makes `filters_each` filters, from `chunk` columns of `images_each` images at a time: the gradients of a tile
// stay in the first-level cache and the planes in the second. If there are too few work-items otherwise, `splits` of
// them share the chunks, each with its own partial sums.
__kernel NO_AUTOVEC void conv_cpu_weight_grad(__global const REAL *grads, const ulong grads_offset,
                                              __global const REAL *planes, const ulong planes_offset,
                                              __global REAL *sums, const ulong sums_offset,
                                              __global const int *tap_offsets, const WeightGradGeometry geometry) {
    const uint taps = geometry.taps, channels = geometry.channels, filters = geometry.filters, groups = geometry.groups;
    const uint images = geometry.images, images_each = geometry.images_each, splits = geometry.splits;
    const uint count = geometry.count, chunk = geometry.chunk;
    const long g_image = geometry.g_image, g_channel = geometry.g_channel;
    const long x_image = geometry.x_image, x_channel = geometry.x_channel;
    const uint first_filter = get_global_id(0) * geometry.filters_each;
    const uint split = get_global_id(1), group = get_global_id(2);
    if (first_filter >= filters || split >= splits || group >= groups) return;
    const uint chunks = (count + chunk - 1) / chunk;
    grads += grads_offset + (long)(group * filters) * g_channel;
    planes += planes_offset + (long)(group * channels) * x_channel;
    sums += sums_offset + ((ulong)split * groups + group) * filters * channels * taps;
    for (uint part = split; part < chunks * ((images + images_each - 1) / images_each); part += splits) {
        const uint image = part / chunks * images_each, begin = part % chunks * chunk;
        add_weights(grads + (long)image * g_image, planes + (long)image * x_image, sums, tap_offsets, taps, channels,
                    g_image, g_channel, x_image, x_channel, min(images_each, images - image), first_filter,
                    min(first_filter + geometry.filters_each, filters), begin, min(begin + chunk, count), part == split);
    }
}
#else
// A work-item packs `images_each` images at a time into memory of its own, which stays in its caches. It makes all filters,
// or one of `splits` partial sums of them.
__kernel NO_AUTOVEC void conv_cpu_weight_grad(
    __global const STORAGE(DTYPE) *g, const ulong g_offset, __global REAL *grads, __global const int *grads_layout,
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *planes, __global const int *layout,
    __global REAL *sums, const ulong sums_offset, __global const int *tap_offsets, const WeightGradGeometry geometry) {
    const uint taps = geometry.taps, channels = geometry.channels, filters = geometry.filters, groups = geometry.groups;
    const uint images = geometry.images, images_each = geometry.images_each, splits = geometry.splits;
    const uint count = geometry.count;
    const long g_image = geometry.g_image, g_channel = geometry.g_channel;
    const long x_image = geometry.x_image, x_channel = geometry.x_channel;
    const uint split = get_global_id(0), group = get_global_id(1);
    if (split >= splits || group >= groups) return;
    const uint worker = split * groups + group;
    const long planes_channel = channel_length(layout), planes_image = channels * planes_channel;
    planes += worker * images_each * planes_image;
    sums += sums_offset + (ulong)worker * filters * channels * taps;
    x += (long)x_offset + (long)(group * channels) * x_channel;
    g += (long)g_offset + (long)(group * filters) * g_channel;
#if !GRADS_IN_PLACE
    const long grads_channel = channel_length(grads_layout), grads_image = filters * grads_channel;
    grads += worker * images_each * grads_image;
#endif
    for (uint image = split * images_each; image < images; image += splits * images_each) {
        const uint some = min(images_each, images - image);
        const bool first_time = image == split * images_each;
        pack_images(x + image * x_image, some, channels, x_image, x_channel, geometry.x_row, geometry.x_column, planes,
                    layout, first_time);
#if GRADS_IN_PLACE
        add_weights(g + image * g_image, planes, sums, tap_offsets, taps, channels, g_image, g_channel, planes_image,
                    planes_channel, some, 0, filters, 0, count, first_time);
#else
        pack_images(g + image * g_image, some, filters, g_image, g_channel, geometry.g_row, geometry.g_column, grads,
                    grads_layout, first_time);
        add_weights(grads, planes, sums, tap_offsets, taps, channels, grads_image, grads_channel, planes_image,
                    planes_channel, some, 0, filters, 0, count, first_time);
#endif
    }
}
#endif
