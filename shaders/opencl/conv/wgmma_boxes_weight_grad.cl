// The weight gradient of a convolution of images with channels last on Hopper's tensor cores with operands copied by the copy
// engine: rows are (tap, channel of x) in blocks of 64 channels, columns filters, k the pixels of the output's gradient g, in
// boxes; see conv/wgmma_boxes.h.
//
// The tiles of a split share the k axis (split-K) and write to `partial` (split, tap, channel, filter), with `pitch` channels
// per tap, which conv/wgmma_split_k_reduce.cl adds up in a fixed order and transposes.

#define SPLIT_K 1
#define LEFT_K_MAJOR 0
#define RIGHT_K_MAJOR 0
#include "conv/wgmma_boxes.h"
#include "lib/dependent_launch.h"

#define MAP_OF_LEFT                                                                                             \
    x + x_offset, channels, (uint)geometry.width, (uint)geometry.height, images, 2 * geometry.x_across,         \
        2 * geometry.x_down, 2 * geometry.x_term, BOX_WIDTH, BOX_HEIGHT, BOX_IMAGES, (uint)geometry.term_step_x, \
        (uint)geometry.term_step_y
#define MAP_OF_RIGHT                                                                                             \
    g + g_offset, n, geometry.term_width, geometry.term_height, images, 2 * geometry.a_term2, 2 * geometry.a_term1, \
        2 * geometry.a_term0, BOX_WIDTH, BOX_HEIGHT, BOX_IMAGES, 1, 1
#define DECLARE_TILE                                                                                     \
    const uint first_column = number % tiles_across * WIDE, split = number / tiles_across / tiles_down;  \
    const uint first_block = (number / tiles_across % tiles_down * CLUSTER + rank) * WARPGROUPS;         \
    const uint first_step = split * boxes_per_split, last_step = min(first_step + boxes_per_split, boxes);
// The tap and the first channel of a block of rows.
#define DECLARE_BLOCK(block)                                                                      \
    const uint tap = (block) / slices, tap_y = tap / geometry.column_width;                       \
    const uint tap_x = tap % geometry.column_width, first_channel = (block) % slices * 64;
#define COPY_K_TILE(step)                                                                                            \
    {                                                                                                                \
        DECLARE_BOX(step, box)                                                                                       \
        _Pragma("unroll") for (uint i = 0; i < WARPGROUPS; i++) {                                                    \
            DECLARE_BLOCK(first_block + i)                                                                           \
            copy_image_box(LEFT(stage) + i * BLOCK_WORDS, left_map, (int)first_channel,                              \
                           box_x * geometry.term_step_x + geometry.origin_x + (int)tap_x * geometry.column_step_x,   \
                           box_y * geometry.term_step_y + geometry.origin_y + (int)tap_y * geometry.column_step_y,   \
                           box_image, FULL(stage));                                                                  \
        }                                                                                                            \
        FOR_PARTS(part, rank)                                                                                        \
        _Pragma("unroll") for (uint i = part * PART; i < (part + 1) * PART; i += 64)                                 \
            copy_image_box_to_cluster(RIGHT(stage) + i * LINE_WORDS, right_map, (int)(first_column + i), box_x,      \
                                      box_y, box_image, FULL(stage));                                                \
    }
#define FIRST(j) sums[4 * (j) + 2 * r]
#define SECOND(j) sums[4 * (j) + 2 * r + 1]
#define STORE_TILE                                                                                              \
    DECLARE_BLOCK(first_block + warpgroup)                                                                      \
    const uint column = first_column + SUM_COLUMN(0);                                                           \
    _Pragma("unroll") for (uint r = 0; r < 2; r++) {                                                            \
        const uint channel = first_channel + SUM_ROW(2 * r);                                                    \
        const uint row = channel < pitch && tap < taps ? 0 : m;                                                 \
        __global float *to = partial + (((ulong)split * taps + tap) * pitch + channel) * n;                     \
        FINISH_ROW(to + column, row, column, SUMS / 4, FIRST, SECOND)                                           \
    }

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_boxes_weight_grad(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *g, const ulong g_offset,
    __global float *partial, __global ulong *maps, const uint channels, const uint pitch, const uint boxes_per_split,
    const uint work_tiles, const ConvGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    const uint m = 1, n = geometry.m, i0 = 0, i1 = 0, i2 = 0;
    const uint images = geometry.k / (geometry.term_height * geometry.term_width);
    const uint taps = geometry.column_height * geometry.column_width;
    const uint boxes_across = (geometry.term_width + BOX_WIDTH - 1) / BOX_WIDTH;
    const uint boxes_down = (geometry.term_height + BOX_HEIGHT - 1) / BOX_HEIGHT;
    const uint boxes = boxes_across * boxes_down * ((images + BOX_IMAGES - 1) / BOX_IMAGES);
    const uint slices = (channels + 63) / 64, tiles_across = (n + WIDE - 1) / WIDE;
    const uint tiles_down = (taps * slices + CLUSTER * WARPGROUPS - 1) / (CLUSTER * WARPGROUPS);
    RUN_TILES
}
