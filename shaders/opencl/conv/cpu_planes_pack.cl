// Pack into the two layouts that conv/cpu_planes.cl and conv/cpu_weight_grad.cl read, in the type of the sums.
//
// pack_planes: images as tap planes (conv/tap_planes.h).
//
// pack_weights: for each group, panel of ROWS rows, phase, channel and tap of the phase, the ROWS weights. `tap_sources` has
// three numbers per tap: its offset in the weight tensor, the first tap of its phase, and the number of taps of its
// phase. Rows past the end are zeros.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef BAND
#define BAND 8
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "conv/tap_planes.h"

// A work-item packs `band` rows of one plane of each of `channels_each` channels.
__kernel NO_AUTOVEC void pack_planes(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *planes,
                                     __global const int *layout, const uint images, const uint channels,
                                     const uint channels_each, const int band, const long x_image, const long x_channel,
                                     const long x_row, const long x_column) {
    const int bands = (LAYOUT_ROWS + band - 1) / band, planes_each = LAYOUT_TOPS * LAYOUT_LEFTS;
    const int plane = get_global_id(0) / bands, first_row = get_global_id(0) % bands * band;
    const uint first = get_global_id(1) * channels_each, image = get_global_id(2);
    if (plane >= planes_each || first >= channels || image >= images) return;
    pack_plane(x + (long)x_offset + image * x_image + first * x_channel, min(channels_each, channels - first), x_channel,
               x_row, x_column, planes + ((ulong)image * channels + first) * planes_each * LAYOUT_PLANE, layout, plane,
               first_row, min(first_row + band, LAYOUT_ROWS), true);
}

// A work-item packs the taps of BAND channels for one panel.
__kernel void pack_weights(__global const STORAGE(DTYPE) *w, const ulong w_offset, __global REAL *packed,
                           __global const int *tap_sources, const uint taps, const uint groups, const uint channels,
                           const uint filters, const long w_group, const long w_filter, const long w_channel) {
    const uint begin = get_global_id(0) * BAND, panel = get_global_id(1), group = get_global_id(2);
    const uint panels = (filters + ROWS - 1) / ROWS;
    if (begin >= channels || panel >= panels || group >= groups) return;
    const uint first = panel * ROWS, rows = min((uint)ROWS, filters - first);
    w += w_offset + (long)group * w_group + (long)first * w_filter;
    packed += ((ulong)group * panels + panel) * channels * taps * ROWS;
    for (uint channel = begin; channel < min(begin + BAND, channels); channel++)
        for (uint t = 0; t < taps; t++) {
            const uint first_tap = tap_sources[3 * t + 1], phase_taps = tap_sources[3 * t + 2];
            __global const STORAGE(DTYPE) *from = w + channel * w_channel + tap_sources[3 * t];
            __global REAL *to = packed + (first_tap * channels + channel * phase_taps + t - first_tap) * ROWS;
            if (rows == ROWS) {
                REAL values[ROWS];
#pragma unroll
                for (uint r = 0; r < ROWS; r++) values[r] = LOAD(DTYPE, from, r * w_filter);
#pragma unroll
                for (uint r = 0; r < ROWS; r++) to[r] = values[r];
                continue;
            }
            for (uint r = 0; r < rows; r++) to[r] = LOAD(DTYPE, from, r * w_filter);
            for (uint r = rows; r < ROWS; r++) to[r] = 0;
        }
}
