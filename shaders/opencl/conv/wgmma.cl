// A convolution, or the gradient of its input, on Hopper's tensor cores: rows are pixels of the result, columns its
// channels, terms (tap, channel of x); see conv/wgmma_tile.h.
//
// conv/wgmma_pack.cl has laid out both operands with channels side by side, `pitch` apart, so that eight terms of a row
// are one copy: x is (part, group, image, down, across, channel), `weight` (part, group, column, tap, channel).
// With SPLIT the groups of a tile share out the terms and write their sums to `partial` (split, group, column, row),
// which conv/split_k_reduce.cl adds up in a fixed order.

#include "conv/wgmma_tile.h"
#include "conv/output_index.h"

#ifndef BIAS_DTYPE
#define BIAS_DTYPE OUT_DTYPE
#endif
#define ALONG 1
#define EACH_LINE _Pragma("unroll 4")
// Eight terms are a piece. Those of a work-item are the same ones of each strip, in rows STEP apart.
#define PIECES (DEPTH / 8)
#define STEP (ITEMS / PIECES)
#define MINE (ROWS / STEP)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma(
    __global const STORAGE(DTYPE) *x, __global const STORAGE(DTYPE) *weight,
#if BIAS
    __global const STORAGE(BIAS_DTYPE) *bias, const ulong bias_offset,
#endif
#if SPLIT
    __global float *to,
#else
    __global STORAGE(OUT_DTYPE) *to, const ulong out_offset, const long out_first,
#endif
    const uint rows, const uint columns, const uint k, const uint share, const uint pitch, const ulong x_group,
    const ulong x_part, const ulong weight_part, const int height, const int width, const int origin_y,
    const int origin_x, const int step_y, const int step_x, const int tap_step_y, const int tap_step_x,
    const uint taps_across, const uint column_lines, const uint column_across, const long out_group,
    const long out_image, const long out_channel, const long out_down, const long out_across) {
    __local uint strips[STAGES * SLOT_WORDS] __attribute__((aligned(1024)));
    const uint me = get_local_id(0), team = me / WARPGROUP, group = get_group_id(2);
    const uint across = (columns + WIDE - 1) / WIDE;
    const uint first_row = get_group_id(0) / across * ROWS, first_column = get_group_id(0) % across * WIDE;
    const uint start = get_group_id(1) * share, end = min(start + share, k);
    x += group * x_group;
    weight += (ulong)group * columns * k;

    int at[MINE], window[MINE];
    const int last = LAST_PIXEL(height, width);
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        const uint row = first_row + me / PIECES + i * STEP;
        const uint image = row / (column_across * column_lines);
        const int y = (int)(row / column_across % column_lines) * step_y + origin_y;
        const int z = (int)(row % column_across) * step_x + origin_x;
        at[i] = (((int)image * height + y) * width + z) * (int)pitch;
        window[i] = row < rows ? PIXEL_AT(y, z) : NOWHERE;
    }
    const uint my_term = me % PIECES * 8;
    uint next = start;

#define TAP(term)                                                                    \
    const uint tap = (term) / pitch;                                                 \
    const int channel = (int)((term)-tap * pitch), tap_y = (int)(tap / taps_across); \
    const int move_y = tap_y * tap_step_y, move_x = (int)(tap - tap_y * taps_across) * tap_step_x;
#define BRING(slot)                                                                                                    \
    {                                                                                                                  \
        const uint term = next + my_term;                                                                              \
        TAP(term)                                                                                                      \
        const int move = (move_y * width + move_x) * (int)pitch + channel, displaced = PIXEL_AT(move_y, move_x);       \
        _Pragma("unroll") for (int i = 0; i < MINE; i++) {                                                             \
            const int wanted = term < end && IS_INSIDE(window[i] + displaced, last);                                   \
            const uint word = WORD_OF(ALONG, ROWS, me / PIECES + i * STEP, my_term);                                   \
            _Pragma("unroll") for (uint part = 0; part < PARTS; part++) {                                              \
                COPY16(LEFT(slot, part) + word, x + part * x_part + (at[i] + move), wanted);                           \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("unroll") for (uint part = 0; part < PARTS; part++)                                                    \
            stage(RIGHT(slot, part), weight + part * weight_part, k, 1, first_column, columns, next, end, ALONG, WIDE, \
                  16, 0, 1);                                                                                           \
        next += DEPTH;                                                                                                 \
    }
    ADD_STRIPS

    EXCHANGE_SUMS
    const uint my_row = first_row + MY_PLACE;
#if SPLIT
    to += ((ulong)get_group_id(1) * get_num_groups(2) + group) * rows * columns + my_row;
#define SUM_AT(line) ((ulong)(first_column + (line)) * rows)
#else
    to += (long)out_offset + out_first + group * out_group + my_row / (column_across * column_lines) * out_image +
          my_row / column_across % column_lines * out_down + my_row % column_across * out_across;
#define SUM_AT(line) ((first_column + (line)) * out_channel)
#endif
#if BIAS
#define PLUS_BIAS(column) +LOAD(BIAS_DTYPE, bias, bias_offset + group * columns + (column))
#else
#define PLUS_BIAS(column)
#endif
#define EXISTS(row, column) ((row) < rows && (column) < columns)
#define AGAIN(row, column)                                                                                      \
    const uint image = (row) / (column_across * column_lines);                                                  \
    const int y = (int)((row) / column_across % column_lines) * step_y + origin_y;                              \
    const int z = (int)((row) % column_across) * step_x + origin_x;                                             \
    for (uint term = start; term < end; term++) {                                                               \
        TAP(term)                                                                                               \
        if (!IS_INSIDE(PIXEL_AT(y + move_y, z + move_x), last)) continue;                                       \
        sum += whole(x, x_part, (((long)image * height + y + move_y) * width + z + move_x) * pitch + channel) * \
               whole(weight, weight_part, (long)(column)*k + term);                                             \
    }
    PUT_SUMS
}
