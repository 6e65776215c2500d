// Convolution on a CPU, from planes: images laid out so that each tap of a window is a plain shift.
// Result (y, x) is column y * pitch + x, and its tap lies `place` further on in a plane, whatever the stride, dilation and
// padding:
//
//     out[filter][column] = bias[filter] + sum over channels c, taps t of weights[filter][c][t] * plane[c][place[t] + column]
//
// A vector holds WIDTH consecutive columns, so neither windows nor blocked layouts are ever written; the few columns between
// two rows of the result are computed in vain. A work-item makes NR columns for some panels of ROWS filters each. Its planes
// then stay in the caches while the weights, packed by panels, pass by.
//
// A phase is a set of taps with results of its own: a convolution has one, the gradient of its input stride_h * stride_w, each
// of which makes the pixels with one remainder by the stride.

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
// Registers: ROWS * VECTORS sums, VECTORS of the plane and one of a weight; 28 of AVX-512's 32.
#ifndef ROWS
#define ROWS 8
#endif
#ifndef VECTORS
#define VECTORS 3
#endif
#ifndef DEPTH
#define DEPTH 288
#endif
#ifndef BIAS
#define BIAS 0
#endif
// Whether the images are planes, or are laid out here.
#ifndef LAID_OUT
#define LAID_OUT 1
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "conv/planes.h"

#define NR (VECTORS * WIDTH)
typedef VEC(REAL) V;

// `table`: for each of `phases` its first tap, number of taps, rows and columns of results and their place in `out`; then the
// place of every tap. Strides count elements.
#define SHAPES \
    __global const int *table, const uint phases, const uint taps, const uint groups, const uint channels, \
        const uint filters, const uint pitch, const uint last
#define OUT_STEPS const long out_channel, const long out_row, const long out_column
#if BIAS
#define BIASES __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#define BIAS_OF_GROUP bias, bias_offset,
#else
#define BIASES
#define BIAS_OF_GROUP
#endif

// The NR columns from `first` on of the panels from `first_panel` to `last_panel`. `planes` and `out` are those of one image
// and group; `last` is where the last tile of a plane may begin without reading past it.
FORCE_INLINE void make_columns(__global const REAL *planes, __global const REAL *weights, BIASES __global STORAGE(OUT_DTYPE) *out,
                          SHAPES, const long channel_step, OUT_STEPS, const uint group, const uint phase, const uint first,
                          const uint first_panel, const uint last_panel) {
    const uint panels = (filters + ROWS - 1) / ROWS;
    __global const int *facts = table + 5 * phase;
    const uint first_tap = facts[0], phase_taps = facts[1], down = facts[2], across = facts[3];
    const uint count = (down - 1) * pitch + across;
    if (first >= count) return;
    // A tile at the end of memory begins earlier, and leaves what another one makes.
    const uint start = min(first, last), end = min(start + NR, count);
    __global const int *places = table + 5 * phases + first_tap;
    planes += start;
    weights += (ulong)group * panels * channels * taps * ROWS + first_tap * ROWS;
    out += facts[4];
    const uint part = max(DEPTH / max(phase_taps, 1u), 1u);
    for (uint panel = first_panel; panel < last_panel; panel++) {
        V made[ROWS * VECTORS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
#if BIAS
            const uint filter = group * filters + min(panel * ROWS + r, filters - 1);
            const V begin = (V)(LOAD(DTYPE, bias, bias_offset + filter));
#else
            const V begin = (V)(0);
#endif
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) made[r * VECTORS + v] = begin;
        }
        __global const REAL *weight = weights + (ulong)panel * channels * taps * ROWS;
        __global const REAL *plane = planes;
        // Sums of sums of about DEPTH terms, whose rounding errors are smaller than those of long sums.
        for (uint first_channel = 0; first_channel < channels; first_channel += part) {
            V sums[ROWS][VECTORS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
            for (uint c = first_channel; c < min(first_channel + part, channels); c++) {
                for (uint t = 0; t < phase_taps; t++) {
                    __global const REAL *at = plane + places[t];
                    V b[VECTORS];
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) b[v] = SHIFTED(at + v * WIDTH);
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        const V w = (V)(weight[t * ROWS + r]);
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) sums[r][v] += w * b[v];
                    }
                }
                weight += taps * ROWS;
                plane += channel_step;
            }
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint v = 0; v < VECTORS; v++) made[r * VECTORS + v] += sums[r][v];
        }
        const uint rows = min((uint)ROWS, filters - panel * ROWS);
        __global STORAGE(OUT_DTYPE) *target = out + (long)(panel * ROWS) * out_channel;
        // Columns of one row of the result at a time.
        for (uint column = first; column < end;) {
            const uint y = column / pitch, x = column - y * pitch;
            const uint run = x < across ? min(across - x, end - column) : 0;
            __private const REAL *from = (__private const REAL *)made + (column - start);
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
                from += NR;
                to += out_channel;
            }
            column += max(run, x < across ? 1u : min(pitch - x, end - column));
        }
    }
}

#if LAID_OUT
// The planes were laid out before: every work-item makes NR columns of one image for `block` panels.
__kernel NO_AUTOVEC void conv_cpu_planes(__global const REAL *planes, const ulong planes_offset, __global const REAL *weights,
                                     BIASES __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, SHAPES,
                                     const uint block, const long image_step, const long channel_step, OUT_STEPS) {
    const uint panels = (filters + ROWS - 1) / ROWS;
    const uint blocks = (panels + block - 1) / block;
    const uint phase = get_global_id(2) / blocks;
    const uint group = get_global_id(1) % groups, image = get_global_id(1) / groups;
    if (phase >= phases) return;
    const uint first_panel = get_global_id(2) % blocks * block;
    make_columns(planes + planes_offset + (long)image * image_step + (long)(group * channels) * channel_step, weights,
                 BIAS_OF_GROUP out + out_offset + (long)get_global_id(1) * filters * out_channel, table, phases, taps, groups,
                 channels, filters, pitch, last, channel_step, out_channel, out_row, out_column, group, phase,
                 get_global_id(0) * NR, first_panel, min(first_panel + block, panels));
}
#else
// Every work-item takes some of the images, and lays out one after the other in memory of its own, which stays in its caches.
__kernel NO_AUTOVEC void conv_cpu_planes(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *planes,
                                     __global const int *layout, __global const REAL *weights,
                                     BIASES __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, SHAPES,
                                     const uint images, const uint workers, const uint columns, const long x_image,
                                     const long x_channel, const long x_row, const long x_column, OUT_STEPS) {
    const uint worker = get_global_id(0);
    if (worker >= workers) return;
    const long channel_step = channel_length(layout);
    planes += worker * (channels * channel_step + NR);
    for (uint i = worker; i < images * groups; i += workers) {
        const uint group = i % groups;
        lay_out_images(x + (long)x_offset + (long)(i / groups) * x_image + (long)(group * channels) * x_channel, 1, channels,
                       x_image, x_channel, x_row, x_column, planes, layout, i == worker);
        for (uint phase = 0; phase < phases; phase++)
            for (uint first = 0; first < columns; first += NR)
                make_columns(planes, weights, BIAS_OF_GROUP out + out_offset + (long)i * filters * out_channel, table, phases,
                             taps, groups, channels, filters, pitch, last, channel_step, out_channel, out_row, out_column,
                             group, phase, first, 0, (filters + ROWS - 1) / ROWS);
    }
}
#endif
