// Winograd convolution F(2x2, 3x3) on a GPU: 3 by 3 kernels of stride 1. Tiles of 4 by 4 pixels at distances of 2 are transformed
// to B^T d B, kernels to G w G^T; the 16 elements of all tiles are then the columns of 16 matrix products (filters, channels) x
// (channels, tiles), with 16 multiplications per channel and four results instead of 36, whose sums m give the results A^T m A.
// Source: Lavin and Gray, arXiv:1509.09308.
//
// The transforms subtract pixels, so that an infinite one makes a whole tile NaN: results that are not finite are computed
// again by their taps.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef BIAS
#define BIAS 0
#endif
#include "conv/winograd_transforms.h"
#include "lib/dtypes.h"

// `columns` is the number of tiles, padded. Weights may be flipped: `w_start` is the first tap, and strides are then negative.
typedef struct {
    long x_image, x_channel, x_down, x_across, w_start, w_filter, w_channel, w_row, w_column;
    uint channels, filters, tiles, columns, tiles_down, tiles_across;
    int height, width, down, across, padding_y, padding_x;
} WinogradGeometry;
#define WINOGRAD_GEOMETRY WinogradGeometry
#include "conv/winograd_taps.h"

// transformed[element][filter][channel].
__kernel void winograd_filters(__global const STORAGE(DTYPE) *w, const ulong w_offset, __global float *transformed,
                               const WinogradGeometry geometry) {
    const uint channel = get_global_id(0), filter = get_global_id(1);
    if (channel >= geometry.channels) return;
    w += (long)w_offset + geometry.w_start + filter * geometry.w_filter + channel * geometry.w_channel;
    float t[4][3];
#pragma unroll
    for (uint s = 0; s < 3; s++) {
        const float a = LOAD(DTYPE, w, s * geometry.w_column), b = LOAD(DTYPE, w, geometry.w_row + s * geometry.w_column);
        const float c = LOAD(DTYPE, w, 2 * geometry.w_row + s * geometry.w_column);
        TRANSFORM_WEIGHTS(a, b, c, t[0][s], t[1][s], t[2][s], t[3][s])
    }
    const ulong step = (ulong)geometry.filters * geometry.channels;
    transformed += (ulong)filter * geometry.channels + channel;
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        __global float *const to = transformed + 4 * r * step;
        TRANSFORM_WEIGHTS(t[r][0], t[r][1], t[r][2], to[0], to[step], to[2 * step], to[3 * step])
    }
}

// The position of tile `tile`: its first pixel is at (2 * y - padding_y, 2 * x - padding_x).
#define LOCATE_TILE                                                                              \
    const uint image = tile / (geometry.tiles_down * geometry.tiles_across);                     \
    const int tile_y = (int)(tile / geometry.tiles_across % geometry.tiles_down);                \
    const int tile_x = (int)(tile % geometry.tiles_across);

// transformed[element][channel][tile]. Columns past the last tile are zeros.
__kernel void winograd_tiles(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global float *transformed,
                             const WinogradGeometry geometry) {
    const uint tile = get_global_id(0), channel = get_global_id(1);
    if (tile >= geometry.columns) return;
    LOCATE_TILE
    const int top = 2 * tile_y - geometry.padding_y, left = 2 * tile_x - geometry.padding_x;
    x += (long)x_offset + image * geometry.x_image + channel * geometry.x_channel;
    float d[4][4];
#pragma unroll
    for (int r = 0; r < 4; r++) {
#pragma unroll
        for (int s = 0; s < 4; s++) {
            const bool inside = tile < geometry.tiles && top + r >= 0 && top + r < geometry.height && left + s >= 0 &&
                                left + s < geometry.width;
            d[r][s] = inside ? LOAD(DTYPE, x, (top + r) * geometry.x_down + (left + s) * geometry.x_across) : 0;
        }
    }
    float t[4][4];
#pragma unroll
    for (uint s = 0; s < 4; s++) {
        TRANSFORM_PIXELS(d[0][s], d[1][s], d[2][s], d[3][s], t[0][s], t[1][s], t[2][s], t[3][s])
    }
    const ulong step = (ulong)geometry.channels * geometry.columns;
    transformed += (ulong)channel * geometry.columns + tile;
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        __global float *const to = transformed + 4 * r * step;
        TRANSFORM_PIXELS(t[r][0], t[r][1], t[r][2], t[r][3], to[0], to[step], to[2 * step], to[3 * step])
    }
}

// sums[element][filter][tile].
__kernel void winograd_results(__global const float *sums, __global const STORAGE(DTYPE) *x, const ulong x_offset,
                               __global const STORAGE(DTYPE) *w, const ulong w_offset,
#if BIAS
                               __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                               __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const WinogradGeometry geometry) {
    const uint tile = get_global_id(0), filter = get_global_id(1);
    if (tile >= geometry.tiles) return;
    LOCATE_TILE
    const ulong step = (ulong)geometry.filters * geometry.columns;
    sums += (ulong)filter * geometry.columns + tile;
    float t[2][4];
#pragma unroll
    for (uint s = 0; s < 4; s++) {
        const float m0 = sums[s * step], m1 = sums[(4 + s) * step], m2 = sums[(8 + s) * step], m3 = sums[(12 + s) * step];
        t[0][s] = m0 + m1 + m2;
        t[1][s] = m1 - m2 - m3;
    }
#if BIAS
    const float shift = LOAD(DTYPE, bias, bias_offset + filter);
#else
    const float shift = 0;
#endif
    x += (long)x_offset + image * geometry.x_image;
    w += (long)w_offset + geometry.w_start + filter * geometry.w_filter;
    out += out_offset + ((ulong)image * geometry.filters + filter) * (uint)(geometry.down * geometry.across);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float pair[2] = {t[r][0] + t[r][1] + t[r][2], t[r][1] - t[r][2] - t[r][3]};
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const int y = 2 * tile_y + r, z = 2 * tile_x + s;
            if (y >= geometry.down || z >= geometry.across) continue;
            float value = pair[s];
            if (value - value != 0)
                value = sum_of_taps(x, w, y - geometry.padding_y, z - geometry.padding_x, geometry);
            STORE(OUT_DTYPE, value + shift, out, y * geometry.across + z);
        }
    }
}
