// The gradient of a convolution's weight on a CPU, from planes (see conv_planes.cl). Each weight is a dot product of a plane of
// the output's gradient and a shifted plane of the input, both of the same pitch:
//
//     out[filter][c][t] = sum over images and columns of slopes[filter][column] * planes[c][place[t] + column]
//
// The gradient's plane holds zeros between its rows and up to `count`, which is a multiple of WIDTH. A register tile makes ROWS
// filters by COLUMNS pairs of channel and tap. A work-item makes `block` filters, `chunk` columns of `together` images at a
// time: the gradients of a tile stay in the first-level cache and the planes in the second. Where that gives too few
// work-items, `splits` of them share the chunks, each with sums of its own.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
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
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"

typedef VEC(REAL) V;
// Vectors at any address. PoCL makes a call of vload, around which every register is saved.
typedef struct __attribute__((packed)) {
    V lanes;
} Shifted;
#define SHIFTED(p) (((__global const Shifted *)(p))->lanes)

// The sums over the lanes of two vectors, half done: neighbouring lanes are added.
#define PAIRED(a, b) ((V)((a).even, (b).even) + (V)((a).odd, (b).odd))
#define FOLDED(a, b) ((V)((a).lo + (a).hi, (b).lo + (b).hi))
#define TOTALS ((ROWS * COLUMNS + WIDTH - 1) / WIDTH * WIDTH)

__kernel AS_WRITTEN void conv_planes_weight_grad(__global const REAL *slopes, const ulong slopes_offset, __global const REAL *planes,
                                      const ulong planes_offset, __global REAL *sums, const ulong sums_offset,
                                      __global const int *places, const uint taps, const uint images, const uint groups,
                                      const uint channels, const uint filters, const uint count, const uint chunk,
                                      const uint together, const uint block, const uint splits, const long slopes_image,
                                      const long slopes_channel, const long planes_image, const long planes_channel) {
    const uint first_filter = get_global_id(0) * block, split = get_global_id(1), group = get_global_id(2);
    if (first_filter >= filters || split >= splits || group >= groups) return;
    const uint columns = channels * taps;
    const uint last_filter = min(first_filter + block, filters);
    const uint chunks = (count + chunk - 1) / chunk;
    slopes += slopes_offset + (long)(group * filters) * slopes_channel;
    planes += planes_offset + (long)(group * channels) * planes_channel;
    sums += sums_offset + ((ulong)split * groups + group) * filters * columns;
    for (uint part = split; part < chunks * ((images + together - 1) / together); part += splits) {
        const uint image = part / chunks * together, last_image = min(image + together, images);
        const uint begin = part % chunks * chunk, end = min(begin + chunk, count);
        __global const REAL *corner = planes + (long)image * planes_image;
        for (uint filter = first_filter; filter < last_filter; filter += ROWS) {
            const uint rows = min((uint)ROWS, last_filter - filter);
            __global const REAL *slope[ROWS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
                slope[r] = slopes + (long)image * slopes_image + (long)(filter + min(r, rows - 1)) * slopes_channel;
            uint channel = 0, tap = 0;
            for (uint first = 0; first < columns; first += COLUMNS) {
                const uint made = min((uint)COLUMNS, columns - first);
                __global const REAL *plane[COLUMNS];
#pragma unroll
                for (uint i = 0; i < COLUMNS; i++) {
                    plane[i] = corner + (long)channel * planes_channel + places[tap];
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
                for (uint i = image; i < last_image; i++) {
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
                for (uint r = 0; r < ROWS; r++) slope[r] -= (long)(last_image - image) * slopes_image;
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
                    for (uint i = 0; i < made; i++) target[i] = sum[r * COLUMNS + i] + (part == split ? 0 : target[i]);
                }
            }
        }
    }
}
