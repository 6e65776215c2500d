// The gradient of a convolution's weight on a CPU, from planes (see conv/cpu_planes.cl). Each weight is a dot product of a plane of
// the output's gradient and a shifted plane of the input, both of the same pitch:
//
//     out[filter][c][t] = sum over images and columns of slopes[filter][column] * planes[c][place[t] + column]
//
// The gradient's plane holds zeros between its rows and up to `count`, which is a multiple of WIDTH. A register tile makes ROWS
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
// Registers: ROWS * COLUMNS sums, COLUMNS of planes and one gradient; 31 of AVX-512's 32.
#ifndef ROWS
#define ROWS 4
#endif
#ifndef COLUMNS
#define COLUMNS 6
#endif
// Whether both operands are planes, or laid out here.
#ifndef LAID_OUT
#define LAID_OUT 1
#endif
#ifndef SLOPES_THERE
#define SLOPES_THERE 1
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "conv/planes.h"

typedef VEC(REAL) V;

// The sums over the lanes of two vectors, half done: neighbouring lanes are added.
#define PAIRED(a, b) ((V)((a).even, (b).even) + (V)((a).odd, (b).odd))
#define FOLDED(a, b) ((V)((a).lo + (a).hi, (b).lo + (b).hi))
#define TOTALS ((ROWS * COLUMNS + WIDTH - 1) / WIDTH * WIDTH)

#define SHAPE \
    __global const int *places, const uint taps, const uint channels, const uint filters
#define STEPS const long slopes_image, const long slopes_channel, const long planes_image, const long planes_channel

// The sums of the filters from `first_filter` to `last_filter` over columns from `begin` to `end` of some images of one group.
FORCE_INLINE void add_weights(__global const REAL *slopes, __global const REAL *planes, __global REAL *sums, SHAPE, STEPS,
                         const uint images, const uint first_filter, const uint last_filter, const uint begin, const uint end,
                         const bool first_time) {
    const uint columns = channels * taps;
    for (uint filter = first_filter; filter < last_filter; filter += ROWS) {
        const uint rows = min((uint)ROWS, last_filter - filter);
        __global const REAL *slope[ROWS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
            slope[r] = slopes + (long)(filter + min(r, rows - 1)) * slopes_channel;
        uint channel = 0, tap = 0;
        for (uint first = 0; first < columns; first += COLUMNS) {
            const uint made = min((uint)COLUMNS, columns - first);
            __global const REAL *plane[COLUMNS];
#pragma unroll
            for (uint i = 0; i < COLUMNS; i++) {
                plane[i] = planes + (long)channel * planes_channel + places[tap];
                if (i + 1 < made && ++tap == taps) {
                    tap = 0;
                    channel++;
                }
            }
            if (++tap == taps) {
                tap = 0;
                channel++;
            }
            V total[ROWS][COLUMNS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint i = 0; i < COLUMNS; i++) total[r][i] = (V)(0);
            for (uint image = 0; image < images; image++) {
                for (uint at = begin; at < end; at += WIDTH) {
                    V p[COLUMNS];
#pragma unroll
                    for (uint i = 0; i < COLUMNS; i++) p[i] = SHIFTED(plane[i] + at);
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        const V s = SHIFTED(slope[r] + at);
#pragma unroll
                        for (uint i = 0; i < COLUMNS; i++) total[r][i] += s * p[i];
                    }
                }
#pragma unroll
                for (uint r = 0; r < ROWS; r++) slope[r] += slopes_image;
#pragma unroll
                for (uint i = 0; i < COLUMNS; i++) plane[i] += planes_image;
            }
#pragma unroll
            for (uint r = 0; r < ROWS; r++) slope[r] -= images * slopes_image;
            // All sums over lanes at once, as halvings of pairs of vectors.
            V joined[TOTALS / 2];
#pragma unroll
            for (uint i = 0; i < TOTALS / 2; i++)
                joined[i] = 2 * i < ROWS * COLUMNS ? FOLDED(total[2 * i / COLUMNS][2 * i % COLUMNS],
                                                            total[(2 * i + 1) / COLUMNS % ROWS][(2 * i + 1) % COLUMNS])
                                                   : (V)(0);
#pragma unroll
            for (uint pairs = TOTALS / 4; pairs >= TOTALS / WIDTH; pairs /= 2)
#pragma unroll
                for (uint i = 0; i < TOTALS / 4; i++)
                    if (i < pairs) joined[i] = PAIRED(joined[2 * i], joined[2 * i + 1]);
            V found[TOTALS / WIDTH];
#pragma unroll
            for (uint i = 0; i < TOTALS / WIDTH; i++) found[i] = joined[i];
            __private const REAL *sum = (__private const REAL *)found;
            for (uint r = 0; r < rows; r++) {
                __global REAL *target = sums + (ulong)(filter + r) * columns + first;
                for (uint i = 0; i < made; i++) target[i] = sum[r * COLUMNS + i] + (first_time ? 0 : target[i]);
            }
        }
    }
}

#if LAID_OUT
// Both operands were laid out before. A work-item makes `block` filters, `chunk` columns of `together` images at a time: the
// gradients of a tile stay in the first-level cache and the planes in the second. Where that gives too few work-items,
// `splits` of them share the chunks, each with sums of its own.
__kernel NO_AUTOVEC void conv_cpu_weight_grad(__global const REAL *slopes, const ulong slopes_offset,
                                                 __global const REAL *planes, const ulong planes_offset,
                                                 __global REAL *sums, const ulong sums_offset, SHAPE, const uint images,
                                                 const uint groups, const uint count, const uint together, const uint splits,
                                                 const uint chunk, const uint block, STEPS) {
    const uint first_filter = get_global_id(0) * block, split = get_global_id(1), group = get_global_id(2);
    if (first_filter >= filters || split >= splits || group >= groups) return;
    const uint chunks = (count + chunk - 1) / chunk;
    slopes += slopes_offset + (long)(group * filters) * slopes_channel;
    planes += planes_offset + (long)(group * channels) * planes_channel;
    sums += sums_offset + ((ulong)split * groups + group) * filters * channels * taps;
    for (uint part = split; part < chunks * ((images + together - 1) / together); part += splits) {
        const uint image = part / chunks * together, begin = part % chunks * chunk;
        add_weights(slopes + (long)image * slopes_image, planes + (long)image * planes_image, sums, places, taps, channels,
                    filters, slopes_image, slopes_channel, planes_image, planes_channel, min(together, images - image),
                    first_filter, min(first_filter + block, filters), begin, min(begin + chunk, count), part == split);
    }
}
#else
// A work-item takes `together` images at a time and lays them out in memory of its own, which stays in its caches. It makes all
// filters, or its share of their sums. SLOPES_THERE: the gradients are read where they are.
__kernel NO_AUTOVEC void conv_cpu_weight_grad(
    __global const STORAGE(DTYPE) *g, const ulong g_offset, __global REAL *slopes, __global const int *slopes_layout,
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *planes, __global const int *layout,
    __global REAL *sums, const ulong sums_offset, SHAPE, const uint images, const uint groups, const uint count,
    const uint together, const uint splits, const long g_image, const long g_channel, const long g_row, const long g_column,
    const long x_image, const long x_channel, const long x_row, const long x_column) {
    const uint split = get_global_id(0), group = get_global_id(1);
    if (split >= splits || group >= groups) return;
    const uint worker = split * groups + group;
    const long planes_channel = channel_length(layout), planes_image = channels * planes_channel;
    planes += worker * together * planes_image;
    sums += sums_offset + (ulong)worker * filters * channels * taps;
    x += (long)x_offset + (long)(group * channels) * x_channel;
    g += (long)g_offset + (long)(group * filters) * g_channel;
#if !SLOPES_THERE
    const long slopes_channel = channel_length(slopes_layout), slopes_image = filters * slopes_channel;
    slopes += worker * together * slopes_image;
#endif
    for (uint image = split * together; image < images; image += splits * together) {
        const uint some = min(together, images - image);
        const bool first_time = image == split * together;
        lay_out_images(x + image * x_image, some, channels, x_image, x_channel, x_row, x_column, planes, layout, first_time);
#if SLOPES_THERE
        add_weights(g + image * g_image, planes, sums, places, taps, channels, filters, g_image, g_channel, planes_image,
                    planes_channel, some, 0, filters, 0, count, first_time);
#else
        lay_out_images(g + image * g_image, some, filters, g_image, g_channel, g_row, g_column, slopes, slopes_layout,
                       first_time);
        add_weights(slopes, planes, sums, places, taps, channels, filters, slopes_image, slopes_channel, planes_image,
                    planes_channel, some, 0, filters, 0, count, first_time);
#endif
    }
}
#endif
