// Winograd convolution F(2x2, 3x3) in one product, for groups with much local memory. Tiles and transforms are those of
// conv/winograd.cl, but transformed pixels and sums are not written to memory: a group computes all elements of ROWS filters and
// COLUMNS tiles. It transforms pixels while it reads them, to local memory, one step of TERMS channels ahead of the product, and at
// the end the elements meet in local memory.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef BIAS
#define BIAS 0
#endif
// 1: the pixels of a line are adjacent in memory.
#ifndef ADJACENT
#define ADJACENT 0
#endif
#include "conv/winograd_product.h"
#include "lib/async_copy.h"
#include "lib/dtypes.h"

// Channels that the group transforms at a time.
#define LINES (ITEMS / COLUMNS)
#define LINES_EACH ((TERMS + LINES - 1) / LINES)
#define HAS_LINE(l) (TERMS % LINES == 0 || line + (l) * LINES < TERMS)
#define ACROSS (ADJACENT ? 1 : geometry.x_across)
// Copies of 16 bytes for the rows of an element, and rows that the group copies at a time.
#define CHUNKS (ROWS / 4)
#define COPIED (ITEMS / CHUNKS)
#define LEFT (TERMS * TILE * ROWS)
#define RIGHT (TERMS * TILE * COLUMNS)

// Weights may be flipped: `w_start` is the first tap, and strides are then negative.
typedef struct {
    long x_image, x_channel, x_down, x_across, w_start, w_filter, w_channel, w_row, w_column;
    uint channels, filters, tiles, padded_filters, tiles_down, tiles_across;
    int height, width, down, across, padding_y, padding_x;
} FusedWinogradGeometry;
#define WINOGRAD_GEOMETRY FusedWinogradGeometry
#include "conv/winograd_taps.h"

// transformed[channel][element][filter], with zeros in the padding to whole groups and steps.
__kernel void winograd_fused_filters(__global const STORAGE(DTYPE) *w, const ulong w_offset, __global float *transformed,
                               const FusedWinogradGeometry geometry) {
    const uint filter = get_global_id(0), channel = get_global_id(1);
    if (filter >= geometry.padded_filters) return;
    const bool inside = filter < geometry.filters && channel < geometry.channels;
    w += (long)w_offset + geometry.w_start + filter * geometry.w_filter + channel * geometry.w_channel;
    float t[4][3];
#pragma unroll
    for (uint s = 0; s < 3; s++) {
        float tap[3];
#pragma unroll
        for (uint r = 0; r < 3; r++)
            tap[r] = inside ? LOAD(DTYPE, w, r * geometry.w_row + s * geometry.w_column) : 0;
        TRANSFORM_WEIGHTS(tap[0], tap[1], tap[2], t[0][s], t[1][s], t[2][s], t[3][s])
    }
    const uint step = geometry.padded_filters;
    transformed += (ulong)channel * TILE * step + filter;
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        __global float *const to = transformed + 4 * r * step;
        TRANSFORM_WEIGHTS(t[r][0], t[r][1], t[r][2], to[0], to[step], to[2 * step], to[3 * step])
    }
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_winograd_fused(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const float *transformed,
    __global const STORAGE(DTYPE) *w, const ulong w_offset,
#if BIAS
    __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const FusedWinogradGeometry geometry) {
    __local float staged[2 * (LEFT + RIGHT)] __attribute__((aligned(16)));
    const uint me = get_local_id(0), line = me / COLUMNS, first_filter = get_group_id(0) * ROWS;
    // The tile that this work-item transforms; its first pixel is at (top, left).
    const uint tile = get_group_id(1) * COLUMNS + me % COLUMNS;
    const uint image = tile / (geometry.tiles_down * geometry.tiles_across);
    const int tile_y = (int)(tile / geometry.tiles_across % geometry.tiles_down);
    const int tile_x = (int)(tile % geometry.tiles_across);
    const int top = 2 * tile_y - geometry.padding_y, left = 2 * tile_x - geometry.padding_x;
    x += (long)x_offset + image * geometry.x_image;
    uint inside = 0;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const bool in_image = (uint)(top + r) < (uint)geometry.height && (uint)(left + c) < (uint)geometry.width;
            inside |= (uint)(tile < geometry.tiles && in_image) << (4 * r + c);
        }
    __global const STORAGE(DTYPE) *from = x + (line * geometry.x_channel + top * geometry.x_down + left * ACROSS);
    transformed += (ulong)(me / CHUNKS) * geometry.padded_filters + first_filter + me % CHUNKS * 4;
    float d[LINES_EACH][4][4];
    uint channel = line;

#define FETCH(number)                                                                                                \
    {                                                                                                                \
        __local float *const rows = staged + (number) * (LEFT + RIGHT);                                              \
        _Pragma("unroll") for (uint i = 0; i < TERMS * TILE / COPIED; i++) {                                         \
            const uint row = me / CHUNKS + i * COPIED;                                                               \
            COPY16((__local uint *)(rows + row * ROWS + PLACE_OF(row, me % CHUNKS * 4)),                             \
                   transformed + i * COPIED * geometry.padded_filters, true);                                        \
        }                                                                                                            \
        transformed += TERMS * TILE * geometry.padded_filters;                                                       \
        _Pragma("unroll") for (uint l = 0; l < LINES_EACH; l++) {                                                    \
            const uint used = HAS_LINE(l) && channel + l * LINES < geometry.channels ? inside : 0;                   \
            _Pragma("unroll") for (uint r = 0; r < 4; r++) _Pragma("unroll") for (uint c = 0; c < 4; c++) {          \
                const long at = l * LINES * geometry.x_channel + r * geometry.x_down + c * ACROSS;                   \
                d[l][r][c] = used >> (4 * r + c) & 1 ? LOAD(DTYPE, from, at) : 0;                                    \
            }                                                                                                        \
        }                                                                                                            \
        channel += TERMS;                                                                                            \
        from += TERMS * geometry.x_channel;                                                                          \
    }
#define STAGE(number)                                                                                             \
    _Pragma("unroll") for (uint l = 0; l < LINES_EACH; l++) {                                                     \
        __local float *const to = staged + (number) * (LEFT + RIGHT) + LEFT + (line + l * LINES) * TILE * COLUMNS; \
        if (HAS_LINE(l)) STORE_PIXELS(d[l], to, COLUMNS, me % COLUMNS)                                            \
    }

    DECLARE_BLOCK
    FETCH(0)
    COPIES_COMMIT();
    STAGE(0)
    uint stage = 0;
    for (uint first = 0; first < geometry.channels; first += TERMS) {
        COPIES_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        const bool more = first + TERMS < geometry.channels;
        if (more) FETCH(stage ^ 1)
        COPIES_COMMIT();
        __local const float *const rows = staged + stage * (LEFT + RIGHT);
        MULTIPLY(rows, TILE * ROWS, rows + LEFT, TILE * COLUMNS)
        stage ^= 1;
        if (more) {
            STAGE(stage)
        }
    }

    // The elements of 16 filters at a time meet in local memory.
    out += out_offset + (ulong)image * geometry.filters * (uint)(geometry.down * geometry.across);
    w += (long)w_offset + geometry.w_start;
#pragma unroll
    for (uint q = 0; q < ROW_QUADS; q++) {
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint i = 0; i < 4; i++)
#pragma unroll
            for (uint j = 0; j < COLUMN_QUADS; j++)
                *(__local float4 *)(staged + (element * 16 + row4 + i) * COLUMNS + j * 16 + column4) = SUMS_OF(4 * q + i, j);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint f = line; f < 16; f += LINES) {
            const uint filter = first_filter + q * 16 + f;
            if (filter >= geometry.filters || tile >= geometry.tiles) break;
            __local const float *const m = staged + f * COLUMNS + me % COLUMNS;
            float t[2][4];
#pragma unroll
            for (uint s = 0; s < 4; s++) {
                const float m0 = m[s * 16 * COLUMNS], m1 = m[(4 + s) * 16 * COLUMNS];
                const float m2 = m[(8 + s) * 16 * COLUMNS], m3 = m[(12 + s) * 16 * COLUMNS];
                t[0][s] = m0 + m1 + m2;
                t[1][s] = m1 - m2 - m3;
            }
#if BIAS
            const float shift = LOAD(DTYPE, bias, bias_offset + filter);
#else
            const float shift = 0;
#endif
            __global STORAGE(OUT_DTYPE) *const to = out + (ulong)filter * (uint)(geometry.down * geometry.across);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float pair[2] = {t[r][0] + t[r][1] + t[r][2], t[r][1] - t[r][2] - t[r][3]};
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    const int y = 2 * tile_y + r, z = 2 * tile_x + s;
                    if (y >= geometry.down || z >= geometry.across) continue;
                    float value = pair[s];
                    if (value - value != 0)
                        value = sum_of_taps(x, w + filter * geometry.w_filter, y - geometry.padding_y,
                                            z - geometry.padding_x, geometry);
                    STORE(OUT_DTYPE, value + shift, to, y * geometry.across + z);
                }
            }
        }
    }
}
