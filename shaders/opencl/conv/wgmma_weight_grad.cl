// The gradient of a convolution's weight on Hopper's tensor cores: rows are (tap, channel of x), columns filters, terms
// pixels of the result; see conv/wgmma_tile.h.
//
// conv/wgmma_pack.cl has laid out both operands with channels side by side: x is (part, group, image, down, across,
// channel), `slope`, the gradient of the result, (part, group, pixel, filter). `pitch` and `slope_pitch` are the
// distances of their pixels.
// The groups of a tile share out the terms and write their sums to `partial` (share, group, row, column), which
// conv/wgmma_split_k_reduce.cl adds up in a fixed order and turns round.

#define SPLIT 1
#include "conv/wgmma_tile.h"
#include "conv/output_index.h"

#define ALONG 0
#define EACH_LINE _Pragma("unroll 1")
// Eight rows are a piece. Those of a work-item are the same ones of each strip, for pixels STEP apart.
#define PIECES (ROWS / 8)
#define STEP (ITEMS / PIECES)
#define MINE (DEPTH / STEP)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_weight_grad(
    __global const STORAGE(DTYPE) *x, __global const STORAGE(DTYPE) *slope, __global float *partial, const uint rows,
    const uint columns, const uint k, const uint share, const ulong x_group, const ulong x_part, const uint slope_pitch,
    const ulong slope_group, const ulong slope_part, const uint down, const uint wide, const int height, const int width,
    const int origin_y, const int origin_x, const int step_y, const int step_x, const int tap_step_y,
    const int tap_step_x, const uint pitch, const uint taps_across) {
    __local uint strips[STAGES * SLOT_WORDS] __attribute__((aligned(1024)));
    const uint me = get_local_id(0), team = me / WARPGROUP, group = get_group_id(2);
    const uint across = (columns + WIDE - 1) / WIDE;
    const uint first_row = get_group_id(0) / across * ROWS, first_column = get_group_id(0) % across * WIDE;
    const uint start = get_group_id(1) * share, end = min(start + share, k);
    x += group * x_group;
    slope += group * slope_group;

    const int last = LAST_PIXEL(height, width);
    const uint my_row = me % PIECES * 8;
    uint next = start;

// Row (tap, channel) as a displacement, and pixel `term` as the place of its window.
#define TAP(row)                                                                    \
    const uint tap = (row) / pitch;                                                 \
    const int channel = (int)((row)-tap * pitch), tap_y = (int)(tap / taps_across); \
    const int move_y = tap_y * tap_step_y, move_x = (int)(tap - tap_y * taps_across) * tap_step_x;
#define WINDOW(term)                                               \
    const uint image = (term) / (down * wide);                     \
    const int y = (int)((term) / wide % down) * step_y + origin_y; \
    const int z = (int)((term) % wide) * step_x + origin_x;
    TAP(first_row + my_row)
    const int move = (move_y * width + move_x) * (int)pitch + channel;
    const int displaced = first_row + my_row < rows ? PIXEL_AT(move_y, move_x) : NOWHERE;
#define BRING(slot)                                                                                                      \
    {                                                                                                                    \
        _Pragma("unroll") for (int i = 0; i < MINE; i++) {                                                               \
            const uint term = next + me / PIECES + i * STEP;                                                             \
            WINDOW(term)                                                                                                 \
            const int wanted = term < end && IS_INSIDE(PIXEL_AT(y, z) + displaced, last);                                \
            const uint word = WORD_OF(ALONG, ROWS, me / PIECES + i * STEP, my_row);                                      \
            const int at = (((int)image * height + y) * width + z) * (int)pitch + move;                                  \
            _Pragma("unroll") for (uint part = 0; part < PARTS; part++) {                                                \
                COPY16(LEFT(slot, part) + word, x + part * x_part + at, wanted);                                         \
            }                                                                                                            \
        }                                                                                                                \
        _Pragma("unroll") for (uint part = 0; part < PARTS; part++)                                                      \
            stage(RIGHT(slot, part), slope + part * slope_part, 1, slope_pitch, first_column, columns, next, end, ALONG, \
                  WIDE, 16, 0, 1);                                                                                       \
        next += DEPTH;                                                                                                   \
    }
    ADD_STRIPS

    EXCHANGE_SUMS
    __global float *to =
        partial + ((ulong)get_group_id(1) * get_num_groups(2) + group) * rows * columns + first_column + MY_PLACE;
#define SUM_AT(line) ((ulong)(first_row + (line)) * columns)
#define PLUS_BIAS(column)
#define EXISTS(row, column) ((row) < rows && (column) < columns)
#define AGAIN(row, column)                                                                                      \
    TAP(row)                                                                                                    \
    for (uint term = start; term < end; term++) {                                                               \
        WINDOW(term)                                                                                            \
        if (!IS_INSIDE(PIXEL_AT(y + move_y, z + move_x), last)) continue;                                       \
        sum += whole(x, x_part, (((long)image * height + y + move_y) * width + z + move_x) * pitch + channel) * \
               whole(slope, slope_part, (long)term * slope_pitch + (column));                                   \
    }
    PUT_SUMS
}
