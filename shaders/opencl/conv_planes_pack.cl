// The two layouts that conv_planes.cl and conv_planes_weight_grad.cl read, in the type of the sums.
//
// pack_planes: each channel of an image as phases_h * phases_w planes of `rows` rows of `pitch` pixels. Pixel (y, x) of plane
// (i, j) is the image's pixel (y * stride_h + i * dilation_h % stride_h + origin_h, ...), or 0 outside of it. Planes lie
// `plane` pixels apart; those left over are zeros.
//
// pack_weights: for each group, panel of ROWS rows, channel and tap, the ROWS weights; `sources` says where each tap lies in
// the tensor of weights. Rows past the end are zeros.

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
#include "dtypes.h"
#include "vectors.h"

// A few neighbours at any address, for what is left of a row after whole vectors. PoCL makes a call of vload.
#define FEW 4
typedef struct __attribute__((packed)) {
    CONCAT(REAL, FEW) lanes;
} Few;

// A work-item makes BAND rows of one plane of each of `together` channels.
__kernel AS_WRITTEN void pack_planes(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global REAL *planes, const uint images, const uint channels,
    const uint together, const int height, const int width, const int rows, const int pitch, const uint plane,
    const int phases_h, const int phases_w, const int stride_h, const int stride_w, const int dilation_h, const int dilation_w,
    const int origin_h, const int origin_w, const long x_image, const long x_channel, const long x_row, const long x_column) {
    const int bands = (rows + BAND - 1) / BAND;
    const int phase = get_global_id(0) / bands, band = get_global_id(0) % bands;
    const uint first = get_global_id(1) * together, image = get_global_id(2);
    if (phase >= phases_h * phases_w || first >= channels || image >= images) return;
    const int top = phase / phases_w * dilation_h % stride_h + origin_h;
    const int left = phase % phases_w * dilation_w % stride_w + origin_w;
    // Pixels from `begin` to `end` lie inside the image.
    const int begin = left < 0 ? min((-left + stride_w - 1) / stride_w, pitch) : 0;
    const int end = width > left ? max(min((width - left + stride_w - 1) / stride_w, pitch), begin) : begin;
    const long step = stride_w * x_column;
    const int first_row = band * BAND, last_row = min(first_row + BAND, rows);
    const uint limit = band == bands - 1 ? plane : (uint)(last_row * pitch);
    // Of short rows, what is outside of the image is a large part, and too little at a time to be written by itself.
    const bool is_short = pitch < 2 * WIDTH;
    for (uint channel = first; channel < min(first + together, channels); channel++) {
        __global const STORAGE(DTYPE) *from = x + (long)x_offset + (long)image * x_image + (long)channel * x_channel;
        __global REAL *to = planes + (((ulong)image * channels + channel) * phases_h * phases_w + phase) * plane;
        if (is_short) {
            uint i = first_row * pitch;
            for (; i + WIDTH <= limit; i += WIDTH) CONCAT(vstore, WIDTH)((VEC(REAL))(0), 0, to + i);
            for (; i < limit; i++) to[i] = 0;
        } else
            for (uint i = last_row * pitch; i < limit; i++) to[i] = 0;
        for (int y = first_row; y < last_row; y++) {
            const int at = y * stride_h + top;
            const bool inside = at >= 0 && at < height;
            if (is_short && !inside) continue;
            const int start = inside ? begin : pitch, stop = inside ? end : pitch;
            __global const STORAGE(DTYPE) *source = from + at * x_row + left * x_column;
            __global REAL *row = to + (ulong)y * pitch;
            int i = start;
            if (step == 1) {
                for (; i + WIDTH <= stop; i += WIDTH) {
                    const VEC(REAL) pixels = LOADV(DTYPE, source + i);
                    CONCAT(vstore, WIDTH)(pixels, 0, row + i);
                }
                if (sizeof(*source) == sizeof(*row))
                    for (; i + FEW <= stop; i += FEW)
                        ((__global Few *)(row + i))->lanes = ((__global const Few *)(source + i))->lanes;
            } else if (step == 2)
                // Every second pixel of two vectors; the last pixel may have no neighbour.
                for (; i + WIDTH < stop; i += WIDTH) {
                    const VEC(REAL) low = LOADV(DTYPE, source + 2 * i), high = LOADV(DTYPE, source + 2 * i + WIDTH);
                    const VEC(REAL) pixels = (VEC(REAL))(low.even, high.even);
                    CONCAT(vstore, WIDTH)(pixels, 0, row + i);
                }
            for (; i < stop; i++) row[i] = LOAD(DTYPE, source, i * step);
            if (is_short) continue;
            for (i = 0; i < start; i++) row[i] = 0;
            for (i = stop; i < pitch; i++) row[i] = 0;
        }
    }
}

// A work-item packs the taps of BAND channels for one panel.
__kernel void pack_weights(__global const STORAGE(DTYPE) *w, const ulong w_offset, __global REAL *packed,
                           __global const int *sources, const uint taps, const uint groups, const uint channels,
                           const uint filters, const long w_group, const long w_filter, const long w_channel) {
    const uint begin = get_global_id(0) * BAND, panel = get_global_id(1), group = get_global_id(2);
    const uint panels = (filters + ROWS - 1) / ROWS;
    if (begin >= channels || panel >= panels || group >= groups) return;
    const uint first = panel * ROWS, rows = min((uint)ROWS, filters - first);
    w += w_offset + (long)group * w_group + (long)first * w_filter;
    packed += ((ulong)group * panels + panel) * channels * taps * ROWS;
    for (uint channel = begin; channel < min(begin + BAND, channels); channel++)
        for (uint t = 0; t < taps; t++) {
            __global const STORAGE(DTYPE) *from = w + channel * w_channel + sources[t];
            __global REAL *to = packed + (channel * taps + t) * ROWS;
            for (uint r = 0; r < rows; r++) to[r] = LOAD(DTYPE, from, r * w_filter);
            for (uint r = rows; r < ROWS; r++) to[r] = 0;
        }
}
