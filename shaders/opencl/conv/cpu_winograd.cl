// Winograd convolution F(2x2, 3x3) on a CPU: 3 by 3 kernels of stride 1. A tile of 2 by 2 results takes 16 multiplications
// per channel instead of 36. Tiles of 4 by 4 pixels are transformed to B^T d B, kernels to G w G^T; the 16 elements of a tile
// are then 16 matrix products, whose sums m give the results A^T m A. Source: Lavin and Gray, arXiv:1509.09308.
//
// Tile (y, x) is column y * pitch + x of tap planes that conv/cpu_planes_pack.cl made of every second pixel, so that a vector
// of tiles takes plain loads: pixel (r, s) of the tiles begins at tap_offsets[4 * r + s].
//
// A work-item makes TILE_COLUMNS tiles at a time, and keeps their transformed pixels of all channels in `scratch`. The
// transforms subtract pixels, so that an infinite one makes a whole tile NaN: results that are not finite are computed again
// by their taps.

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
// Registers: ROWS * VECTORS accumulators, VECTORS of the tiles and one of a weight; 28 of AVX-512's 32.
#ifndef ROWS
#define ROWS 8
#endif
#ifndef VECTORS
#define VECTORS 3
#endif
// Channels that are added up at a time, for accuracy.
#ifndef DEPTH
#define DEPTH 64
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef BAND
#define BAND 8
#endif
#define ALIGNED 0
#include "conv/winograd_transforms.h"
#include "lib/dtypes.h"
#include "lib/vectors.h"

#define TILE_COLUMNS (VECTORS * WIDTH)
typedef VEC(REAL) V;
// A vector at any address, without vload, which may be a call (QUIRK_OPERATORS_FOR_BUILTINS).
typedef struct __attribute__((packed)) {
    V lanes;
} UnalignedVector;
#define CONST_VECTOR_AT(p) (((__global const UnalignedVector *)(p))->lanes)

typedef CONCAT(REAL, ROWS) Panel;
typedef struct __attribute__((packed)) {
    Panel rows;
} UnalignedPanel;
#define PANEL_AT(p) ((__global UnalignedPanel *)(p))->rows

// The first weight of the flipped or plain windows, and strides.
typedef struct {
    long w_start, w_group, w_filter, w_channel, w_row, w_column;
} WeightStrides;
#define DECLARE_WEIGHT_STRIDES                                                                                     \
    const long w_start = strides.w_start, w_group = strides.w_group, w_filter = strides.w_filter;                  \
    const long w_channel = strides.w_channel, w_row = strides.w_row, w_column = strides.w_column;

// packed[group][panel][element][channel][row] = G w G^T of BAND channels for ROWS filters. Rows past the end are zeros.
__kernel NO_AUTOVEC void winograd_weights(__global const STORAGE(DTYPE) *w, const ulong w_offset, __global REAL *packed,
                                          const uint groups, const uint channels, const uint filters,
                                          const WeightStrides strides) {
    DECLARE_WEIGHT_STRIDES
    const uint first = get_global_id(0) * BAND, panel = get_global_id(1), group = get_global_id(2);
    const uint panels = (filters + ROWS - 1) / ROWS;
    if (first >= channels || panel >= panels || group >= groups) return;
    const uint rows = min((uint)ROWS, filters - panel * ROWS);
    const ulong step = (ulong)channels * ROWS;
    packed += ((ulong)group * panels + panel) * TILE * step;
    w += (long)w_offset + w_start + (long)group * w_group + (long)(panel * ROWS) * w_filter;
    for (uint channel = first; channel < min(first + BAND, channels); channel++) {
        Panel window[9];
        for (uint i = 0; i < 9; i++) {
            __global const STORAGE(DTYPE) *from = w + channel * w_channel + i / 3 * w_row + i % 3 * w_column;
            REAL taps[ROWS];
            for (uint r = 0; r < ROWS; r++) taps[r] = r < rows ? LOAD(DTYPE, from, r * w_filter) : (REAL)0;
            window[i] = CONCAT(vload, ROWS)(0, taps);
        }
        Panel t[4][3];
#pragma unroll
        for (uint s = 0; s < 3; s++) {
            TRANSFORM_WEIGHTS(window[s], window[3 + s], window[6 + s], t[0][s], t[1][s], t[2][s], t[3][s])
        }
#pragma unroll
        for (uint r = 0; r < 4; r++) {
            __global REAL *target = packed + 4 * r * step + channel * ROWS;
            TRANSFORM_WEIGHTS(t[r][0], t[r][1], t[r][2], PANEL_AT(target), PANEL_AT(target + step),
                              PANEL_AT(target + 2 * step), PANEL_AT(target + 3 * step))
        }
    }
}

// transformed[element * step] = the elements of TILE_COLUMNS tiles of one channel, vector by vector.
static inline void transform_tiles(__global const REAL *plane, __global const int *tap_offsets,
                                   __global REAL *transformed, const ulong step) {
#pragma unroll
    for (uint v = 0; v < VECTORS; v++) {
        V t[4][4];
#pragma unroll
        for (uint s = 0; s < 4; s++) {
            const V d0 = CONST_VECTOR_AT(plane + tap_offsets[s] + v * WIDTH);
            const V d1 = CONST_VECTOR_AT(plane + tap_offsets[4 + s] + v * WIDTH);
            const V d2 = CONST_VECTOR_AT(plane + tap_offsets[8 + s] + v * WIDTH);
            const V d3 = CONST_VECTOR_AT(plane + tap_offsets[12 + s] + v * WIDTH);
            TRANSFORM_PIXELS(d0, d1, d2, d3, t[0][s], t[1][s], t[2][s], t[3][s])
        }
#pragma unroll
        for (uint r = 0; r < 4; r++) {
            V e0, e1, e2, e3;
            TRANSFORM_PIXELS(t[r][0], t[r][1], t[r][2], t[r][3], e0, e1, e2, e3)
            __global V *target = (__global V *)(transformed + 4 * r * step + v * WIDTH);
            target[0] = e0;
            *(__global V *)((__global REAL *)target + step) = e1;
            *(__global V *)((__global REAL *)target + 2 * step) = e2;
            *(__global V *)((__global REAL *)target + 3 * step) = e3;
        }
    }
}

// True if two rows of 2 * VECTORS vectors are finite: 0 times an infinity or a NaN is NaN.
static inline bool all_finite(__private const V *lines) {
    V zeros = (V)(0);
#pragma unroll
    for (uint v = 0; v < 4 * VECTORS; v++) zeros += lines[v] * (REAL)0;
    REAL sum = 0;
#pragma unroll
    for (uint i = 0; i < WIDTH; i++) sum += ((__private const REAL *)&zeros)[i];
    return sum == 0;
}

__kernel NO_AUTOVEC void conv_cpu_winograd(__global const REAL *planes, __global const REAL *weights,
                                           __global const STORAGE(DTYPE) *w, const ulong w_offset,
#if BIAS
                                           __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                                           __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                                           __global REAL *scratch, __global const int *tap_offsets, const uint images,
                                           const uint groups, const uint channels, const uint filters, const uint pitch,
                                           const uint tiles_down, const uint tiles_across, const uint down,
                                           const uint across, const uint workers, const long planes_image,
                                           const long planes_channel, const WeightStrides strides) {
    DECLARE_WEIGHT_STRIDES
    const uint worker = get_global_id(0);
    if (worker >= workers) return;
    const uint panels = (filters + ROWS - 1) / ROWS;
    const uint count = (tiles_down - 1) * pitch + tiles_across;
    const uint blocks = (count + TILE_COLUMNS - 1) / TILE_COLUMNS;
    scratch += (ulong)worker * TILE * channels * TILE_COLUMNS;
    for (uint block = worker; block < blocks * images * groups; block += workers) {
        const uint group = block / blocks % groups, image = block / blocks / groups;
        const uint first = block % blocks * TILE_COLUMNS, end = min(first + TILE_COLUMNS, count);
        __global const REAL *plane = planes + (long)image * planes_image + (long)(group * channels) * planes_channel + first;
        for (uint c = 0; c < channels; c++)
            transform_tiles(plane + c * planes_channel, tap_offsets, scratch + c * TILE_COLUMNS,
                            (ulong)channels * TILE_COLUMNS);
        for (uint panel = 0; panel < panels; panel++) {
            V acc[TILE * ROWS * VECTORS];
            __global const REAL *weight = weights + ((ulong)group * panels + panel) * TILE * channels * ROWS;
            __global const V *tile = (__global const V *)scratch;
            for (uint element = 0; element < TILE; element++)
                // Sums of partial sums of at most DEPTH channels: their rounding errors are smaller than the errors of
                // one long sum.
                for (uint start = 0; start < channels; start += DEPTH) {
                    V sums[ROWS][VECTORS];
#pragma unroll
                    for (uint r = 0; r < ROWS; r++)
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
                    for (uint c = start; c < min(start + DEPTH, channels); c++) {
                        V b[VECTORS];
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) b[v] = tile[v];
#pragma unroll
                        for (uint r = 0; r < ROWS; r++) {
                            const V w = (V)(weight[r]);
#pragma unroll
                            for (uint v = 0; v < VECTORS; v++) sums[r][v] += w * b[v];
                        }
                        tile += VECTORS;
                        weight += ROWS;
                    }
                    __private V *total = acc + element * ROWS * VECTORS;
                    if (start) {
#pragma unroll
                        for (uint i = 0; i < ROWS * VECTORS; i++) total[i] += sums[i / VECTORS][i % VECTORS];
                    } else {
#pragma unroll
                        for (uint i = 0; i < ROWS * VECTORS; i++) total[i] = sums[i / VECTORS][i % VECTORS];
                    }
                }
            const uint rows = min((uint)ROWS, filters - panel * ROWS);
            for (uint r = 0; r < rows; r++) {
                const uint filter = group * filters + panel * ROWS + r;
#if BIAS
                const V shift = (V)(LOAD(DTYPE, bias, bias_offset + filter));
#else
                const V shift = (V)(0);
#endif
                // Two rows of 2 * TILE_COLUMNS results.
                V lines[2][2 * VECTORS];
                for (uint v = 0; v < VECTORS; v++) {
                    __private const V *m = acc + r * VECTORS + v;
                    V t[2][4];
#pragma unroll
                    for (uint s = 0; s < 4; s++) {
                        const V m0 = m[s * ROWS * VECTORS], m1 = m[(4 + s) * ROWS * VECTORS];
                        const V m2 = m[(8 + s) * ROWS * VECTORS], m3 = m[(12 + s) * ROWS * VECTORS];
                        t[0][s] = m0 + m1 + m2;
                        t[1][s] = m1 - m2 - m3;
                    }
#pragma unroll
                    for (uint i = 0; i < 2; i++) {
                        const V even = t[i][0] + t[i][1] + t[i][2] + shift, odd = t[i][1] - t[i][2] - t[i][3] + shift;
                        V low, high;
                        low.even = even.lo;
                        low.odd = odd.lo;
                        high.even = even.hi;
                        high.odd = odd.hi;
                        lines[i][2 * v] = low;
                        lines[i][2 * v + 1] = high;
                    }
                }
                if (!all_finite(&lines[0][0])) {
                    __global const STORAGE(DTYPE) *taps =
                        w + (long)w_offset + w_start + (long)group * w_group + (long)(panel * ROWS + r) * w_filter;
                    for (uint i = 0; i < 4 * (end - first); i++) {
                        const uint at = i / 4, y = (first + at) / pitch, x = first + at - y * pitch;
                        const uint below = i % 4 / 2, right = i % 2;
                        __private REAL *result = (__private REAL *)lines[below] + 2 * at + right;
                        if (x >= tiles_across || 2 * x + right >= across || 2 * y + below >= down) continue;
                        if (*result - *result == 0) continue;
                        *result = ((__private const REAL *)&shift)[0];
                        for (uint c = 0; c < channels && *result == *result; c++)
                            for (uint t = 0; t < 9; t++)
                                *result += LOAD(DTYPE, taps, c * w_channel + t / 3 * w_row + t % 3 * w_column) *
                                           plane[c * planes_channel + tap_offsets[4 * (below + t / 3) + right + t % 3] + at];
                    }
                }
                __global STORAGE(OUT_DTYPE) *target =
                    out + out_offset + ((ulong)image * groups * filters + filter) * down * across;
                for (uint column = first; column < end;) {
                    const uint y = column / pitch, x = column - y * pitch;
                    const uint run = min(x < tiles_across ? tiles_across - x : pitch - x, end - column);
                    const uint length = x < tiles_across ? min(2 * run, across - 2 * x) : 0;
                    for (uint i = 0; i < 2 && 2 * y + i < down; i++) {
                        __private const REAL *from = (__private const REAL *)lines[i] + 2 * (column - first);
                        __global STORAGE(OUT_DTYPE) *to = target + (2 * y + i) * across + 2 * x;
                        uint at = 0;
                        for (; at + WIDTH <= length; at += WIDTH) {
                            const V value = CONCAT(vload, WIDTH)(0, from + at);
                            STOREV(OUT_DTYPE, value, to + at);
                        }
                        for (; at < length; at++) STORE(OUT_DTYPE, from[at], to, at);
                    }
                    column += run;
                }
            }
        }
    }
}
