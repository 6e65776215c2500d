// Convolution on a CPU, from planes: images laid out by conv_planes_pack.cl so that each tap of a window is a plain shift.
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
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"

#define NR (VECTORS * WIDTH)
typedef VEC(REAL) V;
// Vectors at any address. PoCL makes a call of vload, around which every register is saved.
typedef struct __attribute__((packed)) {
    V lanes;
} Shifted;
#define SHIFTED(p) (((__global const Shifted *)(p))->lanes)

// `table`: for each of `phases` its first tap, number of taps, rows and columns of results and their place in `out`; then the
// place of every tap. Strides count elements; `last` is where the last tile of a plane may begin without reading past it.
__kernel AS_WRITTEN void conv_planes(__global const REAL *planes, const ulong planes_offset, __global const REAL *weights,
#if BIAS
                          __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                          __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, __global const int *table,
                          const uint phases, const uint taps, const uint groups, const uint channels, const uint filters,
                          const uint pitch, const uint last, const uint block, const long image_step,
                          const long channel_step, const long out_channel, const long out_row, const long out_column) {
    const uint panels = (filters + ROWS - 1) / ROWS;
    const uint blocks = (panels + block - 1) / block;
    const uint phase = get_global_id(2) / blocks;
    const uint group = get_global_id(1) % groups, image = get_global_id(1) / groups;
    if (phase >= phases) return;
    __global const int *facts = table + 5 * phase;
    const uint first_tap = facts[0], phase_taps = facts[1], down = facts[2], across = facts[3];
    const uint count = (down - 1) * pitch + across;
    const uint first = get_global_id(0) * NR;
    if (first >= count) return;
    // A tile at the end of memory begins earlier, and leaves what another one makes.
    const uint start = min(first, last), end = min(start + NR, count);
    __global const int *places = table + 5 * phases + first_tap;
    planes += planes_offset + (long)image * image_step + (long)(group * channels) * channel_step + start;
    weights += (ulong)group * panels * channels * taps * ROWS + first_tap * ROWS;
    out += out_offset + facts[4] + (long)(image * groups + group) * filters * out_channel;
    const uint part = max(DEPTH / max(phase_taps, 1u), 1u);
    const uint first_panel = get_global_id(2) % blocks * block;
    const uint last_panel = min(first_panel + block, panels);
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
