// Convolution on a CPU, from tap planes: images packed so that each tap is a constant offset, for any stride, dilation and
// padding. Result (y, x) is column y * pitch + x:
//
//     out[filter][column] = bias[filter] + sum over channels c, taps t of weights[filter][c][t] * plane[c][offset[t] + column]
//
// A vector holds WIDTH consecutive columns, so neither an im2col matrix nor a blocked layout is written; the few columns
// between two rows of the result are wasted. A work-item makes TILE_COLUMNS columns for several panels of ROWS filters: its
// planes stay in the caches while the weights, packed by panels, stream past.
//
// A phase is a set of taps with results of its own: a convolution has one. The input gradient has stride_h * stride_w, one
// for each remainder of a pixel's coordinates by the stride.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: ROWS * VECTORS accumulators, VECTORS of the plane and one of a weight; 28 of AVX-512's 32.
#ifndef ROWS
#define ROWS 8
#endif
#ifndef VECTORS
#define VECTORS 3
#endif
// Terms that are added up at a time, for accuracy.
#ifndef DEPTH
#define DEPTH 288
#endif
#ifndef BIAS
#define BIAS 0
#endif
// 1: another launch packs the planes; 0: this kernel does.
#ifndef PREPACKED
#define PREPACKED 1
#endif
// Channels that are prefetched ahead. The planes of a tile and the weights do not fit in the first-level cache.
#ifndef CHANNELS_AHEAD
#define CHANNELS_AHEAD 0
#endif
#define PREFETCH_DISTANCE CHANNELS_AHEAD
#define ALIGNED 0
#include "lib/dtypes.h"
#include "conv/tap_planes.h"

#define TILE_COLUMNS (VECTORS * WIDTH)
typedef VEC(REAL) V;

// Strides count elements. The last tile of a plane may begin at `last_start` without reading past the plane.
typedef struct {
    long x_image, x_channel, out_channel, out_row, out_column;
#if !PREPACKED
    long x_row, x_column;
    uint images, workers, columns;
#else
    uint panels_each;
#endif
    uint phases, taps, groups, channels, filters, pitch, last_start;
} PlanesGeometry;

#if BIAS
#define BIAS_PARAMETER __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#define BIAS_ARGUMENT bias, bias_offset,
#else
#define BIAS_PARAMETER
#define BIAS_ARGUMENT
#endif

// Make columns `first` to `first` + TILE_COLUMNS for the panels `first_panel` to `last_panel`. `planes` and `out` point
// to one image and group. `table`: for each phase its first tap, number of taps, rows and columns of results, and their
// offset in `out`; then the offset of every tap.
FORCE_INLINE void make_columns(__global const REAL *planes, __global const REAL *weights,
                               BIAS_PARAMETER __global STORAGE(OUT_DTYPE) *out, __global const int *table,
                               const PlanesGeometry geometry, const long channel_step, const uint group, const uint phase,
                               const uint first, const uint first_panel, const uint last_panel) {
    const long out_channel = geometry.out_channel, out_row = geometry.out_row, out_column = geometry.out_column;
    const uint channels = geometry.channels, filters = geometry.filters, taps = geometry.taps, pitch = geometry.pitch;
    const uint panels = (filters + ROWS - 1) / ROWS;
    __global const int *phase_info = table + 5 * phase;
    const uint first_tap = phase_info[0], phase_taps = phase_info[1], down = phase_info[2], across = phase_info[3];
    const uint count = (down - 1) * pitch + across;
    if (first >= count) return;
    // A tile at the end of memory starts earlier, and skips the columns that the previous tile makes.
    const uint start = min(first, geometry.last_start), end = min(start + TILE_COLUMNS, count);
    __global const int *tap_offsets = table + 5 * geometry.phases + first_tap;
    planes += start;
    weights += (ulong)group * panels * channels * taps * ROWS + first_tap * channels * ROWS;
    out += phase_info[4];
    const uint chunk = max(DEPTH / max(phase_taps, 1u), 1u);
    for (uint panel = first_panel; panel < last_panel; panel++) {
        V acc[ROWS * VECTORS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
#if BIAS
            const uint filter = group * filters + min(panel * ROWS + r, filters - 1);
            const V begin = (V)(LOAD(DTYPE, bias, bias_offset + filter));
#else
            const V begin = (V)(0);
#endif
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) acc[r * VECTORS + v] = begin;
        }
        __global const REAL *weight = weights + (ulong)panel * channels * taps * ROWS;
        __global const REAL *plane = planes;
        // Sums of partial sums of about DEPTH terms: their rounding errors are smaller than the errors of one long sum.
        for (uint first_channel = 0; first_channel < channels; first_channel += chunk) {
            V sums[ROWS][VECTORS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
            for (uint c = first_channel; c < min(first_channel + chunk, channels); c++) {
                for (uint t = 0; t < phase_taps; t++) {
                    __global const REAL *at = plane + tap_offsets[t];
                    V b[VECTORS];
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) b[v] = CONST_VECTOR_AT(at + v * WIDTH);
#if CHANNELS_AHEAD
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) { PREFETCH_READ(at + CHANNELS_AHEAD * channel_step + v * WIDTH) }
#endif
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        const V w = (V)(weight[t * ROWS + r]);
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) sums[r][v] += w * b[v];
                    }
                }
                weight += phase_taps * ROWS;
                plane += channel_step;
            }
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint v = 0; v < VECTORS; v++) acc[r * VECTORS + v] += sums[r][v];
        }
        const uint rows = min((uint)ROWS, filters - panel * ROWS);
        __global STORAGE(OUT_DTYPE) *target = out + (long)(panel * ROWS) * out_channel;
        // Store the columns of one row of the result at a time.
        for (uint column = first; column < end;) {
            const uint y = column / pitch, x = column - y * pitch;
            const uint run = x < across ? min(across - x, end - column) : 0;
            __private const REAL *from = (__private const REAL *)acc + (column - start);
            __global STORAGE(OUT_DTYPE) *to = target + y * out_row + x * out_column;
            for (uint r = 0; r < rows && run; r++) {
                uint i = 0;
                if (out_column == 1) {
                    for (; i + WIDTH <= run; i += WIDTH) {
                        const V value = CONCAT(vload, WIDTH)(0, from + i);
                        STOREV(OUT_DTYPE, value, to + i);
                    }
                    for (; i < run; i++) STORE(OUT_DTYPE, from[i], to, i);
                } else
                    for (; i < run; i++) STORE(OUT_DTYPE, from[i], to, i * out_column);
                from += TILE_COLUMNS;
                to += out_channel;
            }
            column += max(run, x < across ? 1u : min(pitch - x, end - column));
        }
    }
}

#if PREPACKED
// A work-item makes TILE_COLUMNS columns of one image for `panels_each` panels.
__kernel NO_AUTOVEC void conv_cpu_planes(__global const REAL *planes, const ulong planes_offset,
                                         __global const REAL *weights,
                                         BIAS_PARAMETER __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                                         __global const int *table, const PlanesGeometry geometry) {
    const uint channels = geometry.channels, filters = geometry.filters, groups = geometry.groups;
    const uint panels = (filters + ROWS - 1) / ROWS, panels_each = geometry.panels_each;
    const uint blocks = (panels + panels_each - 1) / panels_each;
    const uint phase = get_global_id(2) / blocks;
    const uint group = get_global_id(1) % groups, image = get_global_id(1) / groups;
    if (phase >= geometry.phases) return;
    const uint first_panel = get_global_id(2) % blocks * panels_each;
    planes += planes_offset + (long)image * geometry.x_image + (long)(group * channels) * geometry.x_channel;
    make_columns(planes, weights, BIAS_ARGUMENT out + out_offset + (long)get_global_id(1) * filters * geometry.out_channel,
                 table, geometry, geometry.x_channel, group, phase, get_global_id(0) * TILE_COLUMNS, first_panel,
                 min(first_panel + panels_each, panels));
}
#else
// A work-item packs every `workers`-th image into memory of its own, which stays in its caches, and makes all columns of it.
__kernel NO_AUTOVEC void conv_cpu_planes(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *planes,
                                         __global const int *layout, __global const REAL *weights,
                                         BIAS_PARAMETER __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                                         __global const int *table, const PlanesGeometry geometry) {
    const uint worker = get_global_id(0), workers = geometry.workers;
    if (worker >= workers) return;
    const uint channels = geometry.channels, filters = geometry.filters, groups = geometry.groups;
    const long channel_step = channel_length(layout);
    planes += worker * (channels * channel_step + TILE_COLUMNS);
    for (uint i = worker; i < geometry.images * groups; i += workers) {
        const uint group = i % groups;
        pack_images(x + (long)x_offset + (long)(i / groups) * geometry.x_image +
                        (long)(group * channels) * geometry.x_channel,
                    1, channels, geometry.x_image, geometry.x_channel, geometry.x_row, geometry.x_column, planes, layout,
                    i == worker);
        for (uint phase = 0; phase < geometry.phases; phase++)
            for (uint first = 0; first < geometry.columns; first += TILE_COLUMNS)
                make_columns(planes, weights, BIAS_ARGUMENT out + out_offset + (long)i * filters * geometry.out_channel,
                             table, geometry, channel_step, group, phase, first, 0, (filters + ROWS - 1) / ROWS);
    }
}
#endif
