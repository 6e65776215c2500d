// Convolution on a CPU as a matrix product, after BLIS (Van Zee and van de Geijn, 2015): the weights, packed by panels of ROWS
// filters, times the matrix of the pixels that each tap of each channel reads (im2col). Only one panel of the matrix is
// materialized at a time:
//
//     out[filter][column] = bias[filter] + sum over channels c, taps t of
//         weights[filter][c][t] * x[c][y * stride_h + down(t)][x * stride_w + right(t)],  column = y * across + x
//
// A work-item makes tiles of NR columns for several panels of filters. It packs NR columns of about KC terms, which stay in
// the first-level cache while the weights stream past; sums wait in its part of `partial` meanwhile. Reading planes in
// place (conv/cpu_planes.cl) would make vectors straddle two cache lines, and place each channel in another page.
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
// Registers: ROWS * VECTORS accumulators, VECTORS of pixels and one of a weight; 29 of AVX-512's 32.
#ifndef ROWS
#define ROWS 6
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
// Terms of a pass, at most; a phase has no more taps.
#ifndef KC
#define KC 128
#endif
#ifndef BIAS
#define BIAS 0
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/prefetch.h"

typedef VEC(REAL) V;
#define NR (VECTORS * WIDTH)
// Reals from one term of the packed pixels to the next. Vectors may be written up to WIDTH past the end of a term.
#define PITCH (NR + WIDTH)
// Channels whose taps are packed one after the other: their pixels stay in the first-level cache. Channels whose
// distance is a multiple of a page map to the same cache sets.
#define CHANNELS_AT_ONCE 8
typedef struct __attribute__((packed)) {
    V lanes;
} Unaligned;
#define VECTOR_AT(p) (((__global Unaligned *)(p))->lanes)
#define PRIVATE_VECTOR_AT(p) (((__private Unaligned *)(p))->lanes)

// Strides count elements, and those of `x` are not negative. No element after `x_last` may be read.
typedef struct {
    long x_image, x_channel, x_row, x_column, x_last, out_channel, out_row, out_column;
    uint images, groups, channels, filters, height, width, stride_h, stride_w, phases, taps, tiles, panels_each, workers;
} ImplicitGeometry;

// Copy `vectors` vectors of pixels at distance `step`, 1 or 2, for each of `channels` channels; with `cut`, all but
// pixels `begin` to `end` become zeros.
FORCE_INLINE void copy_pixels(__global const STORAGE(DTYPE) *from, const long x_channel, const uint channels, const int step,
                              const uint vectors, const bool cut, const int begin, const int end, __private REAL *to,
                              const uint to_channel) {
    V lane;
#pragma unroll
    for (uint i = 0; i < WIDTH; i++) ((__private REAL *)&lane)[i] = i;
    for (uint v = 0; v < vectors; v++, lane += (V)(WIDTH), from += step * WIDTH, to += WIDTH)
        for (uint c = 0; c < channels; c++) {
            V pixels = LOADV(DTYPE, from + c * x_channel);
            if (step == 2) pixels = (V)(pixels.even, (LOADV(DTYPE, from + c * x_channel + WIDTH)).even);
            if (cut) pixels = SELECT((V)(0), pixels, (lane >= (V)(begin)) & (lane < (V)(end)));
            PRIVATE_VECTOR_AT(to + c * to_channel) = pixels;
        }
}

// Number of results at distance `stride` whose pixels cover `pixels` pixels.
FORCE_INLINE int results_within(const int pixels, const int stride) {
    return stride == 1 ? pixels : stride == 2 ? (pixels + 1) >> 1 : (pixels + stride - 1) / stride;
}

// Pack the pixels of `taps` taps of `channels` channels for the NR columns that begin at `first`. `x` is the element
// `x_before` of the tensor; `shifts` has the rows and columns of each tap.
FORCE_INLINE void pack_pixels(__global const STORAGE(DTYPE) *x, const long x_before, const ImplicitGeometry *g,
                              const uint channels, __global const int *shifts, const uint taps, const uint down,
                              const uint across, const uint first, __private REAL *packed) {
    const int height = g->height, width = g->width, stride_h = g->stride_h, stride_w = g->stride_w;
    const long step = stride_w * g->x_column, x_channel = g->x_channel;
    const uint to_channel = taps * PITCH;
    uint y = first / across, column = first - y * across;
    // One row of results at a time: few tiles have more than two.
    for (uint at = 0; at < NR; column = 0, y++) {
        const int run = min(across - column, NR - at), vectors = (run + WIDTH - 1) / WIDTH;
        const int top = (int)y * stride_h, begins = (int)column * stride_w;
        const bool below = y >= down;
        // Pixels from the first of the run to the last one that whole vectors read.
        const long reach = x_channel * (channels - 1) + step * (vectors * WIDTH) - 1;
        __private REAL *to = packed + at;
        at += run;
        for (uint t = 0; t < taps; t++, to += PITCH) {
            const int row = top + shifts[2 * t], left = begins + shifts[2 * t + 1];
            // Columns `begin` to `end` read pixels of the image, the others are zeros.
            int begin = left < 0 ? min(results_within(-left, stride_w), run) : 0;
            int end = run;
            if (left + (run - 1) * stride_w >= width) end = left < width ? results_within(width - left, stride_w) : 0;
            if (below || row < 0 || row >= height) end = 0;
            begin = min(begin, end);
            const long start = row * g->x_row + left * g->x_column;
            __global const STORAGE(DTYPE) *from = x + start;
            if (begin == end) {
                for (uint c = 0; c < channels; c++)
                    for (int v = 0; v < vectors; v++) PRIVATE_VECTOR_AT(to + c * to_channel + v * WIDTH) = (V)(0);
            } else if (step > 2 || x_before + start < 0 || x_before + start + reach > g->x_last) {
                // Slow path: whole vectors would begin or end outside the tensor.
                for (uint c = 0; c < channels; c++)
                    for (int i = 0; i < run; i++)
                        to[c * to_channel + i] = i >= begin && i < end ? LOAD(DTYPE, from, c * x_channel + i * step) : 0;
            } else if (begin == 0 && end == run) {
                if (step == 1 && run == NR) copy_pixels(from, x_channel, channels, 1, VECTORS, false, 0, 0, to, to_channel);
                else if (step == 1) copy_pixels(from, x_channel, channels, 1, vectors, false, 0, 0, to, to_channel);
                else if (run == NR) copy_pixels(from, x_channel, channels, 2, VECTORS, false, 0, 0, to, to_channel);
                else copy_pixels(from, x_channel, channels, 2, vectors, false, 0, 0, to, to_channel);
            } else if (step == 1) {
                copy_pixels(from, x_channel, channels, 1, vectors, true, begin, end, to, to_channel);
            } else {
                copy_pixels(from, x_channel, channels, 2, vectors, true, begin, end, to, to_channel);
            }
        }
    }
}

// Store `columns` columns of `rows` filters, those of one row of the result at a time.
FORCE_INLINE void store_columns(__global const REAL *from, __global STORAGE(OUT_DTYPE) *out, const ImplicitGeometry *g,
                                const uint rows, const uint first, const uint columns, const uint across) {
    const long out_column = g->out_column;
    for (uint at = 0; at < columns;) {
        const uint y = (first + at) / across, x = first + at - y * across, run = min(across - x, columns - at);
        __global STORAGE(OUT_DTYPE) *to = out + y * g->out_row + x * out_column;
        for (uint r = 0; r < rows; r++, to += g->out_channel) {
            __global const REAL *sums = from + r * NR + at;
            uint i = 0;
            if (out_column == 1)
                for (; i + WIDTH <= run; i += WIDTH) {
                    const V value = VECTOR_AT(sums + i);
                    STOREV(OUT_DTYPE, value, to + i);
                }
            for (; i < run; i++) STORE(OUT_DTYPE, sums[i], to, i * out_column);
        }
        at += run;
    }
}

// `table`: for each phase its first tap, number of taps, rows and columns of results, their offset in `out`, and its first
// tile; then the shifts of every tap. Items are (workers, blocks of panels).
__kernel NO_AUTOVEC void conv_cpu_implicit_gemm(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                                __global const REAL *weights,
#if BIAS
                                                __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                                                __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                                                __global REAL *partial, __global const int *table,
                                                const ImplicitGeometry geometry) {
    const ImplicitGeometry *g = &geometry;
    const uint channels = g->channels, filters = g->filters, taps = g->taps;
    const uint panels = (filters + ROWS - 1) / ROWS, panels_each = g->panels_each;
    const uint worker = get_global_id(0), first_panel = get_global_id(1) * panels_each;
    if (worker >= g->workers || first_panel >= panels) return;
    const uint last_panel = min(first_panel + panels_each, panels);
    partial += ((ulong)get_global_id(1) * g->workers + worker) * panels_each * ROWS * NR;
    x += (long)x_offset;
    V panel[KC * (VECTORS + 1)];
    const ulong all = (ulong)g->images * g->groups * g->tiles;
    const ulong last_tile = all * (worker + 1) / g->workers;
    for (ulong number = all * worker / g->workers; number < last_tile; number++) {
        const uint plane = number / g->tiles, tile = number % g->tiles, group = plane % g->groups;
        __global const int *phase = table;
        for (uint i = 1; i < g->phases && tile >= (uint)table[6 * i + 5]; i++) phase = table + 6 * i;
        const uint first_tap = phase[0], phase_taps = phase[1], down = phase[2], across = phase[3];
        const uint first = (tile - phase[5]) * NR, columns = min((uint)NR, down * across - first);
        __global const int *shifts = table + 6 * g->phases + 2 * first_tap;
        __global const REAL *phase_weights =
            weights + (ulong)group * panels * channels * taps * ROWS + first_tap * channels * ROWS;
        __global STORAGE(OUT_DTYPE) *to = out + out_offset + (long)plane * filters * g->out_channel + phase[4];
        const bool joined = g->out_column == 1 && g->out_row == across;
        // Passes of about equal length.
        const uint passes = phase_taps ? (channels + KC / phase_taps - 1) / (KC / phase_taps) : 1;
        for (uint pass = 0; pass < passes; pass++) {
            const uint first_channel = channels * pass / passes, terms =
                (channels * (pass + 1) / passes - first_channel) * phase_taps;
            const bool last = pass + 1 == passes;
            const long before = plane / g->groups * g->x_image + (long)(group * channels + first_channel) * g->x_channel;
            const uint some = phase_taps ? terms / phase_taps : 0;
            for (uint c = 0; c < some; c += CHANNELS_AT_ONCE) {
                const long from = before + c * g->x_channel;
                pack_pixels(x + from, from, g, min((uint)CHANNELS_AT_ONCE, some - c), shifts, phase_taps, down, across, first,
                            (__private REAL *)panel + c * phase_taps * PITCH);
            }
            for (uint p = first_panel; p < last_panel; p++) {
                __global REAL *sums_before = partial + (ulong)(p - first_panel) * ROWS * NR;
                __global STORAGE(OUT_DTYPE) *target = to + (long)(p * ROWS) * g->out_channel;
                __global const REAL *weight =
                    phase_weights + ((ulong)p * channels * taps + first_channel * phase_taps) * ROWS;
                V sums[ROWS][VECTORS];
#pragma unroll
                for (uint r = 0; r < ROWS; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) {
                        sums[r][v] = (V)(0);
                        if (passes > 1) PREFETCH_L1_WRITE(sums_before + r * NR + v * WIDTH);
                        else if (joined && p * ROWS + r < filters) PREFETCH_L1_WRITE(target + r * g->out_channel + first + v * WIDTH);
                    }
                __private const V *pixels = panel;
                for (uint k = 0; k < terms; k++, pixels += VECTORS + 1, weight += ROWS) {
                    V b[VECTORS];
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) b[v] = pixels[v];
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        const V w = (V)(weight[r]);
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) sums[r][v] += w * b[v];
                    }
                }
                const uint rows = min((uint)ROWS, filters - p * ROWS);
#pragma unroll
                for (uint r = 0; r < ROWS; r++) {
#if BIAS
                    const V begin = (V)(LOAD(DTYPE, bias, bias_offset + group * filters + p * ROWS + min(r, rows - 1)));
#endif
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) {
                        if (pass) sums[r][v] += VECTOR_AT(sums_before + r * NR + v * WIDTH);
#if BIAS
                        else sums[r][v] += begin;
#endif
                    }
                }
                if (last && joined && rows == ROWS && columns == NR) {
#pragma unroll
                    for (uint r = 0; r < ROWS; r++)
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++)
                            STOREV(OUT_DTYPE, sums[r][v], target + r * g->out_channel + first + v * WIDTH);
                    continue;
                }
#pragma unroll
                for (uint r = 0; r < ROWS; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) VECTOR_AT(sums_before + r * NR + v * WIDTH) = sums[r][v];
                if (last) store_columns(sums_before, target, g, rows, first, columns, joined ? down * across : across);
            }
        }
    }
}
