// Weight gradient of a convolution by Winograd F(3x3, 2x2): 3 by 3 kernels of stride 1 in float32, the transposes of the products
// and transforms of conv/winograd.cl. Pixels d of a tile of 4 by 4 and gradients g of its results, 2 by 2, are transformed to
// B^T d B and A g A^T; 16 products (filters, tiles) x (tiles, channels) give sums u, and the gradient of the kernel is G^T u G.
// That takes 16 multiplications for each tile instead of 36.
//
// A group computes all elements of ROWS filters and COLUMNS channels. It transforms TERMS tiles at a time while it reads them, to
// local memory, one step ahead of the product. Groups divide the tiles; winograd_weight_grad_results adds their sums up in a
// fixed order.
//
// The transforms subtract pixels: results that are not finite are computed again by their terms.

// 1: the pixels of a line are adjacent in memory.
#ifndef ADJACENT
#define ADJACENT 0
#endif
#include "conv/winograd_product.h"

// Neighbouring work-items store neighbouring tiles of a line, so that lines of different tiles have to be in different banks.
#define PITCH(lines) (TILE * (lines) + (TERMS < 8 ? 32 / TERMS : 4))
// Filters, or channels, that the group transforms at a time.
#define LINES (ITEMS / TERMS)
#define ROW_LINES ((ROWS + LINES - 1) / LINES)
#define COLUMN_LINES ((COLUMNS + LINES - 1) / LINES)
#define HAS_LINE(l, lines) ((lines) % LINES == 0 || line + (l) * LINES < (lines))
#define STEP(distance) (ADJACENT ? 1 : (distance))

// Sizes and strides of images, of the output's gradient and of the weight; `terms` is the number of tiles of a split.
typedef struct {
    long x_image, x_channel, x_down, x_across, g_image, g_filter, g_down, g_across;
    uint channels, filters, tiles, terms, tiles_down, tiles_across, padded_channels, padded_filters;
    int height, width, down, across, padding_y, padding_x, images;
} WinogradGradGeometry;

// partial[split][element][filter][channel], padded to whole blocks.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_winograd_weight_grad(
    __global const float *g, const ulong g_offset, __global const float *x, const ulong x_offset, __global float *partial,
    const WinogradGradGeometry geometry) {
    __local float gradients[2][TERMS * PITCH(ROWS)] __attribute__((aligned(16)));
    __local float pixels[2][TERMS * PITCH(COLUMNS)] __attribute__((aligned(16)));
    const uint me = get_local_id(0), place = me % TERMS, line = me / TERMS;
    const uint first_filter = get_group_id(0) * ROWS, first_channel = get_group_id(1) * COLUMNS;
    const uint start = get_group_id(2) * geometry.terms, end = min(start + geometry.terms, geometry.tiles);
    g += g_offset + (first_filter + line) * geometry.g_filter;
    x += x_offset + (first_channel + line) * geometry.x_channel;

    // The tile that this work-item transforms next.
    uint next = start + place;
    uint image = next / (geometry.tiles_down * geometry.tiles_across);
    uint tile_y = next / geometry.tiles_across % geometry.tiles_down, tile_x = next % geometry.tiles_across;
    float d[COLUMN_LINES][4][4], s[ROW_LINES][2][2];

#define FETCH                                                                                                         \
    {                                                                                                                 \
        const int y = 2 * (int)tile_y, z = 2 * (int)tile_x, top = y - geometry.padding_y, left = z - geometry.padding_x; \
        const long x_at = image * geometry.x_image + top * geometry.x_down + left * STEP(geometry.x_across);          \
        const long g_at = image * geometry.g_image + y * geometry.g_down + z * STEP(geometry.g_across);               \
        _Pragma("unroll") for (uint l = 0; l < COLUMN_LINES; l++) {                                                   \
            const bool used = next < end && HAS_LINE(l, COLUMNS) && first_channel + line + l * LINES < geometry.channels; \
            __global const float *const from = x + x_at + l * LINES * geometry.x_channel;                             \
            _Pragma("unroll") for (int r = 0; r < 4; r++) _Pragma("unroll") for (int c = 0; c < 4; c++) {             \
                const bool in_line = (uint)(left + c) < (uint)geometry.width;                                         \
                const bool inside = used && (uint)(top + r) < (uint)geometry.height && in_line;                       \
                d[l][r][c] = inside ? from[r * geometry.x_down + c * STEP(geometry.x_across)] : 0;                    \
            }                                                                                                         \
        }                                                                                                             \
        _Pragma("unroll") for (uint l = 0; l < ROW_LINES; l++) {                                                      \
            const bool used = next < end && HAS_LINE(l, ROWS) && first_filter + line + l * LINES < geometry.filters;  \
            __global const float *const from = g + g_at + l * LINES * geometry.g_filter;                              \
            _Pragma("unroll") for (int r = 0; r < 2; r++) _Pragma("unroll") for (int c = 0; c < 2; c++) {             \
                const bool inside = used && y + r < geometry.down && z + c < geometry.across;                         \
                s[l][r][c] = inside ? from[r * geometry.g_down + c * STEP(geometry.g_across)] : 0;                    \
            }                                                                                                         \
        }                                                                                                             \
        next += TERMS;                                                                                                \
        for (tile_x += TERMS; tile_x >= geometry.tiles_across; tile_x -= geometry.tiles_across)                       \
            if (++tile_y == geometry.tiles_down) {                                                                    \
                tile_y = 0;                                                                                           \
                image++;                                                                                              \
            }                                                                                                         \
    }

#define STAGE(number)                                                                                 \
    _Pragma("unroll") for (uint l = 0; l < COLUMN_LINES; l++) {                                       \
        __local float *const to = pixels[number] + place * PITCH(COLUMNS);                            \
        if (HAS_LINE(l, COLUMNS)) STORE_PIXELS(d[l], to, COLUMNS, line + l * LINES)                   \
    }                                                                                                 \
    _Pragma("unroll") for (uint l = 0; l < ROW_LINES; l++) {                                          \
        __local float *const to = gradients[number] + place * PITCH(ROWS);                            \
        const uint at[2] = {PLACE_OF(0, line + l * LINES), PLACE_OF(1, line + l * LINES)};            \
        float t[4][2];                                                                                \
        _Pragma("unroll") for (uint c = 0; c < 2; c++) {                                              \
            TRANSFORM_GRADIENTS(s[l][0][c], s[l][1][c], t[0][c], t[1][c], t[2][c], t[3][c])           \
        }                                                                                             \
        if (!HAS_LINE(l, ROWS)) continue;                                                             \
        _Pragma("unroll") for (uint r = 0; r < 4; r++) {                                              \
            float e[4];                                                                               \
            TRANSFORM_GRADIENTS(t[r][0], t[r][1], e[0], e[1], e[2], e[3])                             \
            _Pragma("unroll") for (uint c = 0; c < 4; c++) to[(4 * r + c) * ROWS + at[c % 2]] = e[c]; \
        }                                                                                             \
    }

    DECLARE_BLOCK
    FETCH
    STAGE(0)
    uint stage = 0;
    for (uint from = start; from < end; from += TERMS) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const bool more = from + TERMS < end;
        if (more) FETCH
        MULTIPLY(gradients[stage], PITCH(ROWS), pixels[stage], PITCH(COLUMNS))
        stage ^= 1;
        if (more) {
            STAGE(stage)
        }
    }

    partial += (((ulong)get_group_id(2) * TILE + element) * geometry.padded_filters + first_filter + row4) *
                   geometry.padded_channels +
               first_channel + column4;
#pragma unroll
    for (uint i = 0; i < 4 * ROW_QUADS; i++)
#pragma unroll
        for (uint q = 0; q < COLUMN_QUADS; q++)
            *(__global float4 *)(partial + (i / 4 * 16 + i % 4) * geometry.padded_channels + q * 16) = SUMS_OF(i, q);
}

// A result by its terms, for sums that are not finite.
static inline float sum_of_terms(__global const float *g, __global const float *x, int row, int column,
                                 WinogradGradGeometry geometry) {
    float sum = 0;
    for (int image = 0; image < geometry.images; image++)
        for (int y = max(0, geometry.padding_y - row); y < geometry.down; y++) {
            const int down = y + row - geometry.padding_y;
            if (down >= geometry.height) break;
            for (int z = max(0, geometry.padding_x - column); z < geometry.across; z++) {
                const int across = z + column - geometry.padding_x;
                if (across >= geometry.width) break;
                sum += g[image * geometry.g_image + y * geometry.g_down + z * geometry.g_across] *
                       x[image * geometry.x_image + down * geometry.x_down + across * geometry.x_across];
            }
        }
    return sum;
}

// Add up the parts of 16 channels of a filter, one element per work-item, and transform them.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void winograd_weight_grad_results(
    __global const float *partial, __global const float *g, const ulong g_offset, __global const float *x,
    const ulong x_offset, __global float *out, const ulong out_offset, const uint splits,
    const WinogradGradGeometry geometry) {
    __local float sums[TILE][16 + 1];
    const uint me = get_local_id(0), element = me / 16, filter = get_group_id(1), first_channel = get_group_id(0) * 16;
    const ulong step = (ulong)geometry.padded_filters * geometry.padded_channels;
    partial += element * step + (ulong)filter * geometry.padded_channels + first_channel + me % 16;
    float sum = 0;
#pragma unroll 8
    for (uint s = 0; s < splits; s++) sum += partial[s * TILE * step];
    sums[element][me % 16] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint channel = first_channel + me / 9;
    if (me >= 16 * 9 || channel >= geometry.channels) return;
    const int row = me % 9 / 3, column = me % 3;
    float t[4];
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        const float u0 = sums[4 * r][me / 9], u1 = sums[4 * r + 1][me / 9], u2 = sums[4 * r + 2][me / 9];
        t[r] = GRADIENT_OF_WEIGHT(column, u0, u1, u2, sums[4 * r + 3][me / 9]);
    }
    float value = GRADIENT_OF_WEIGHT(row, t[0], t[1], t[2], t[3]);
    if (value - value != 0)
        value = sum_of_terms(g + g_offset + filter * geometry.g_filter, x + x_offset + channel * geometry.x_channel, row,
                             column, geometry);
    out[out_offset + ((ulong)filter * geometry.channels + channel) * 9 + me % 9] = value;
}
