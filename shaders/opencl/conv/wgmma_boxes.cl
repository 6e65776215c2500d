// A convolution of images with channels last, or its input gradient, on Hopper's tensor cores with operands copied by the copy
// engine: an implicit matrix product whose rows are pixels of the result, in boxes, whose columns are its channels, and
// whose k is (tap, channel of x); see conv/wgmma_boxes.h. The copy engine writes zeros for taps outside an image.
//
// Weights are (filter, y, x, channel): their channels are the terms of a convolution, and the columns of its input gradient
// (RIGHT_K_MAJOR 0). With MOMENTS 1 the moments of channels in boxes are stored, too (lib/column_moments.h).

#ifndef RIGHT_K_MAJOR
#define RIGHT_K_MAJOR 1
#endif
#define LEFT_K_MAJOR 1
#include "conv/wgmma_boxes.h"
#include "lib/dependent_launch.h"

#define MAP_OF_LEFT                                                                                                  \
    x + x_offset, channels, (uint)width, (uint)height, images, 2 * geometry.x_across, 2 * geometry.x_down,           \
        2 * geometry.x_column, BOX_WIDTH, BOX_HEIGHT, BOX_IMAGES, (uint)geometry.column_step_x,                      \
        (uint)geometry.column_step_y
#define MAP_OF_RIGHT                                                                                                  \
    weight + ((long)weight_offset + weight_first), RIGHT_K_MAJOR ? channels : n, geometry.term_width, geometry.term_height,                  \
        RIGHT_K_MAJOR ? n : channels, 2 * geometry.a_term2, 2 * geometry.a_term1,                                     \
        2 * (RIGHT_K_MAJOR ? geometry.a_row : geometry.a_term0), 1, 1, RIGHT_K_MAJOR ? PART : 64, 1, 1
#define DECLARE_TILE                                                                     \
    const uint first_column = number % tiles_across * WIDE;                              \
    const uint first_box = (number / tiles_across * CLUSTER + rank) * WARPGROUPS;        \
    const uint first_step = 0, last_step = geometry.term_height * geometry.term_width * slices;
#define COPY_K_TILE(step)                                                                                              \
    {                                                                                                                  \
        const uint tap = (step) / slices, tap_y = tap / geometry.term_width, tap_x = tap % geometry.term_width;        \
        const int channel = (int)((step) % slices * 64);                                                               \
        const int move_y = (int)tap_y * geometry.term_step_y + geometry.origin_y;                                      \
        const int move_x = (int)tap_x * geometry.term_step_x + geometry.origin_x;                                      \
        _Pragma("unroll") for (uint i = 0; i < WARPGROUPS; i++) {                                                      \
            DECLARE_BOX(first_box + i, box)                                                                            \
            copy_image_box(LEFT(stage) + i * BLOCK_WORDS, left_map, channel, box_x * geometry.column_step_x + move_x,  \
                           box_y * geometry.column_step_y + move_y, box_image, FULL(stage));                           \
        }                                                                                                              \
        FOR_PARTS(part, rank)                                                                                          \
        _Pragma("unroll") for (uint i = part * PART; i < (part + 1) * PART; i += RIGHT_K_MAJOR ? PART : 64)            \
            copy_image_box_to_cluster(RIGHT(stage) + i * LINE_WORDS, right_map,                                        \
                                      RIGHT_K_MAJOR ? channel : (int)(first_column + i), (int)tap_x, (int)tap_y,       \
                                      RIGHT_K_MAJOR ? (int)(first_column + i) : channel, FULL(stage));                 \
    }
#define FIRST(j) sums[4 * (j) + 2 * r]
#define SECOND(j) sums[4 * (j) + 2 * r + 1]
#define STORE_TILE                                                                                                    \
    DECLARE_BOX(first_box + warpgroup, box)                                                                           \
    const uint column = first_column + SUM_COLUMN(0);                                                                 \
    _Pragma("unroll") for (uint r = 0; r < 2; r++) {                                                                  \
        const uint pixel = SUM_ROW(2 * r);                                                                            \
        const uint at_x = box_x + pixel % BOX_WIDTH, at_y = box_y + pixel / BOX_WIDTH % BOX_HEIGHT;                   \
        const uint image = box_image + pixel / (BOX_WIDTH * BOX_HEIGHT);                                              \
        const uint row =                                                                                              \
            at_x < geometry.column_width && at_y < geometry.column_height && image < images ? 0 : m;                  \
        __global TARGET *to = out + (image * out_image + at_y * out_down + at_x * out_across);                        \
        FINISH_ROW(to + column, row, column, SUMS / 4, FIRST, SECOND)                                                 \
    }

// ConvGeometry's a_row, a_term0 ... are the strides of the weights' columns, channels and taps.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_boxes(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *weight,
    const ulong weight_offset, const long weight_first, EPILOGUE_PARAMETERS __global TARGET *out, const ulong out_offset, const long out_first,
    MOMENTS_PARAMETERS __global ulong *maps, const uint channels, const uint work_tiles, const long out_image, const long out_down,
    const long out_across, const ConvGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    UNPACK_EPILOGUE
    const uint m = geometry.n, n = geometry.m, i0 = 0, i1 = 0, i2 = 0;
    const uint images = geometry.n / (geometry.column_height * geometry.column_width);
    const int width = geometry.width, height = geometry.height;
    const uint boxes_across = (geometry.column_width + BOX_WIDTH - 1) / BOX_WIDTH;
    const uint boxes_down = (geometry.column_height + BOX_HEIGHT - 1) / BOX_HEIGHT;
    const uint tiles_across = (n + WIDE - 1) / WIDE, slices = (channels + 63) / 64;
    out += (long)out_offset + out_first;
    RUN_TILES
}
